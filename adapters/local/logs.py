"""Reading the output of a node run: which file, which part of it."""

from __future__ import annotations

import os
import stat
from typing import Any, NamedTuple

from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.local.journals import read_lines
from overspan.adapters.local.rundir import RunDirectory
from overspan.bridge.model.errors import NotFound


class Part(NamedTuple):
    """The bytes of a file that belong to one attempt; `end` None is the file's end."""

    path: str
    begin: int
    end: int | None


def read_log(place: RunDirectory, request: LogRequest) -> LogPart:
    """Bytes of a log from an offset; a negative one counts from the end. NotFound when there is no such log.

    Attempts that append to one file have a part of it each; offsets and sizes are those of the part.
    """
    part = find_part(read_lines(place.streams), request)
    if part is None:
        what = f"task {request.task}, node {request.node}" if request.task else f"node {request.node}"
        raise NotFound(f"job {place.job} has no {request.stream} of {what} yet")
    try:
        fd = os.open(part.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise NotFound(f"the log {part.path} cannot be read: {error.strerror}") from None
    try:
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            raise NotFound(f"the output went to {part.path}, which is not a file")
        end = status.st_size if part.end is None else min(part.end, status.st_size)
        size = max(0, end - part.begin)
        offset = request.offset if request.offset >= 0 else max(0, size + request.offset)
        data = os.pread(fd, max(0, min(request.limit, size - offset)), part.begin + offset)
    finally:
        os.close(fd)
    return LogPart(data, offset, size, part.path)


def find_part(lines: list[Any], request: LogRequest) -> Part | None:
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
    return Part(path, begin, int(later[0].get("start", 0)) if later else None)
