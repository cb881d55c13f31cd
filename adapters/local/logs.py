"""Reading the output of a node run: which file, which part of it."""

from __future__ import annotations

import os
import stat

from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.local.journals import read_lines
from overspan.adapters.local.rundir import RunDirectory
from overspan.adapters.log_parts import find_part
from overspan.adapters.log_times import find_marks
from overspan.bridge.model.errors import NotFound


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
    marks = find_marks(read_lines(place.times), part, place.folder) if request.times else None
    return LogPart(data, offset, size, part.path, marks=marks)
