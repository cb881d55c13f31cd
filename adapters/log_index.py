"""Where a log is and when it grew, by the two lists that a supervisor keeps in the run directory. Pure.

`streams.jsonl` names the file of each node run and where its part begins, `times.jsonl` the sizes of files over time.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from overspan.adapters.contract import LogRequest

Marks = tuple[tuple[float, int], ...]


class FileRange(NamedTuple):
    """The bytes of a file that belong to one attempt; `end` None is the file's end."""

    path: str
    begin: int
    end: int | None


def find_range(lines: list[Any], request: LogRequest) -> FileRange | None:
    """The part of a file that streams.jsonl names for a request; None when it names none.

    An error stream that went with the output has no line of its own: it is found there.
    """
    node = [line for line in lines if line.get("node") == request.node and request.task in ("", line.get("task"))]
    attempts = [line["attempt"] for line in node if request.attempt in (None, line["attempt"])]
    if not attempts:
        return None
    attempt = max(attempts)
    own = [line for line in node if line["attempt"] == attempt and line["stream"] == request.stream]
    if not own:
        return None
    # The node's own restarts within an attempt follow one another in one part.
    path, begin = str(own[0]["path"]), int(own[0].get("start", 0))
    if own[-1]["path"] != path:
        path, begin = str(own[-1]["path"]), int(own[-1].get("start", 0))
    later = [line for line in node if line["path"] == path and line["attempt"] > attempt]
    return FileRange(path, begin, int(later[0].get("start", 0)) if later else None)


def find_marks(lines: list[Any], part: FileRange, folder: str) -> Marks:
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
