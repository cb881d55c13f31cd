"""Locations of a set's members: a file for each task, to which the supervisor of its newest native job adds a line.

The supervisors of the other tasks read it each second. Each file has one writer at a time, and opening a file makes a
network file system look again: so no lock and no server is needed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

from overspan.bridge.model.job import Placement
from overspan.bridge.runtime.slurm.part_folders import name_part


def locations_path(run_dir: str, task: str, launch: int) -> str:
    """The file of a task."""
    return os.path.join(run_dir, name_part(task), f"seats.{launch}.jsonl")


def render_locations(members: Sequence[Placement], native: str) -> bytes:
    """The line that tells where the members of a task run, and in which native job."""
    rows = [[member.task, member.index, member.node, member.address] for member in members]
    return json.dumps({"native": native, "members": rows}, separators=(",", ":")).encode() + b"\n"


def append_locations(path: str, line: bytes) -> None:
    """Add the line, unless it is the last one. Raises OSError."""
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(path, "ab+") as file:
        file.seek(0)
        lines = file.read().splitlines(keepends=True)
        if lines[-1:] == [line]:
            return
        torn = bool(lines) and not lines[-1].endswith(b"\n")
        file.write(b"\n" * torn + line)


def read_locations(path: str) -> tuple[Placement, ...]:
    """The members of a task by the last whole line; none where there is no such line yet."""
    try:
        with open(path, "rb") as file:
            lines = [line for line in file.read().splitlines(keepends=True) if line.endswith(b"\n")]
    except OSError:
        return ()
    for line in reversed(lines):
        try:
            return tuple(_read_row(*row) for row in json.loads(line)["members"])
        except (ValueError, KeyError, TypeError):
            continue
    return ()


def _read_row(task: str, index: int, node: str, address: str, *rest: Any) -> Placement:
    return Placement(str(task), int(index), str(node), str(address))
