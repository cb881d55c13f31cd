"""A class name stands for one concept: no two packages define the same one, unless it plays the same role in each."""

from __future__ import annotations

import ast
from collections import defaultdict
from pathlib import Path

from tests.unit.docs.pages import ROOT

PACKAGES = ("adapters", "bridge", "tui")

SAME_ROLE = {
    # The same part of each adapter.
    "Cursor": {"adapters/kubernetes", "adapters/slurm"},
    "Handle": {"adapters/kubernetes", "adapters/slurm"},
    "Orderer": {"adapters/kubernetes", "adapters/slurm"},
    "Partition": {"adapters/kubernetes", "adapters/local"},
    "Projection": {"adapters/kubernetes", "adapters/slurm"},
    # What the daemon does for all clusters, and an adapter for its own.
    "Logs": {"adapters/kubernetes", "adapters/slurm", "bridge/controller"},
    "Settings": {"adapters/kubernetes", "adapters/local", "adapters/slurm", "bridge/config"},
    "Submitter": {"adapters/kubernetes", "adapters/slurm", "bridge/controller"},
    # A decision to start a task, and the job that an adapter is handed to start.
    "Launch": {"adapters/contract.py", "bridge/model"},
    # A program of the runtime on each kind of cluster.
    "Supervisor": {"bridge/runtime/local", "bridge/runtime/slurm"},
    # What the daemon answers, as the client reads it.
    "Accepted": {"adapters/contract.py", "bridge/client"},
    "LogPart": {"adapters/contract.py", "bridge/client"},
    "Submission": {"bridge/client", "bridge/readers"},
    "Transition": {"bridge/client", "bridge/lifecycle"},
}
"""By class name, the packages that may define it."""


def find_package(path: Path) -> str:
    """The package of a module: an adapter, a part of the bridge, or a program of the runtime."""
    parts = path.relative_to(ROOT).parts
    return "/".join(parts[: 3 if parts[:2] == ("bridge", "runtime") else 2])


def list_definitions() -> dict[str, list[str]]:
    """By class name, the packages of its definitions, one for each."""
    found: dict[str, list[str]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.ClassDef):
                    found[node.name].append(find_package(path))
    return found


def test_a_class_name_is_defined_once_or_plays_the_same_role() -> None:
    shared = {name: sorted(places) for name, places in list_definitions().items() if len(places) > 1}
    assert shared == {name: sorted(places) for name, places in SAME_ROLE.items()}
