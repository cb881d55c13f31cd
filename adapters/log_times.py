"""When a log grew, by the sizes that a supervisor notes in the run directory (times.jsonl). Pure."""

from __future__ import annotations

import os
from typing import Any

from overspan.adapters.log_parts import Part

Marks = tuple[tuple[float, int], ...]


def find_marks(lines: list[Any], part: Part, folder: str) -> Marks:
    """The times and sizes of one part of a file: offsets are those of the part. Damaged lines are passed over."""
    names = {part.path, os.path.relpath(part.path, folder)}
    marks: list[tuple[float, int]] = []
    for line in lines:
        try:
            at, sizes = float(line["at"]), line["sizes"]
            size = next((int(sizes[name]) for name in names if name in sizes), None)
        except (LookupError, TypeError, ValueError):
            continue
        if size is None:
            continue
        size = max(0, (size if part.end is None else min(size, part.end)) - part.begin)
        if marks and size < marks[-1][1]:
            # It was emptied: what was noted before is of bytes that are gone.
            marks.clear()
        if size > (marks[-1][1] if marks else 0):
            marks.append((at, size))
    return tuple(marks)
