"""What differs by the kind of a cluster is said by its adapter: nothing else compares kinds."""

from __future__ import annotations

import re

from tests.unit.docs.pages import ROOT

COMPARES = re.compile(r"""kind\s*(?:==|!=|in|not\sin)\s*\(?["'](?:local|slurm|kubernetes|pool)["']""")
SECTIONS = {
    # A job file has sections by these names; which of its clusters is one is told by the configuration.
    "bridge/readers",
    "bridge/controller/submission/spec_changes.py",
    # The demonstration has clusters of its own.
    "tui/demo",
}


def test_no_kind_is_compared_outside_adapters() -> None:
    files = [file for top in ("bridge", "tui") for file in sorted((ROOT / top).rglob("*.py"))]
    found = [
        f"{path}:{number}: {line.strip()}"
        for file in files
        if not (path := str(file.relative_to(ROOT))).startswith(tuple(SECTIONS))
        for number, line in enumerate(file.read_text().splitlines(), 1)
        if COMPARES.search(line)
    ]
    assert found == [], "make it a field of the adapter's Traits"
