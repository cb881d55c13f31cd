"""Reads the output of a node run from its part of a file."""

from __future__ import annotations

import io
import os
import stat
from typing import IO

from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.local.files.journals import read_lines
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.adapters.local.files.run_packs import name_pack, read_member
from overspan.adapters.log_index import find_marks, find_range
from overspan.bridge.model.errors import NotFound


def read_log(place: LaunchFiles, request: LogRequest) -> LogPart:
    """Bytes of a log from an offset; a negative one counts from the end. Raises NotFound if there is no such log.

    If attempts append to one file, each has a part of it; offset and size are relative to that part. The path of a
    packed log is inside of the pack.
    """
    try:
        part = find_range(read_lines(place.streams), request)
    except OSError as error:
        raise NotFound(f"the list of job {place.job}'s output files cannot be read: {error.strerror}") from None
    if part is None:
        what = f"task {request.task}, node {request.node}" if request.task else f"node {request.node}"
        raise NotFound(f"job {place.job} has no {request.stream} of {what} yet")
    try:
        file, path = _open(place, part.path)
    except OSError as error:
        raise NotFound(f"the log {part.path} cannot be read: {error.strerror}") from None
    with file:
        length = file.seek(0, os.SEEK_END)
        size = max(0, (length if part.end is None else min(part.end, length)) - part.begin)
        offset = request.offset if request.offset >= 0 else max(0, size + request.offset)
        file.seek(part.begin + offset)
        data = file.read(max(0, min(request.limit, size - offset)))
    marks = find_marks(read_lines(place.times), part, place.folder) if request.times else None
    return LogPart(data, offset, size, path, marks=marks)


def _open(place: LaunchFiles, path: str) -> tuple[IO[bytes], str]:
    """Open a log; returns it and its path. Raises OSError, or NotFound if it is not a regular file."""
    try:
        # O_NONBLOCK: opening a FIFO without a writer would block.
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        name = os.path.relpath(path, place.folder)
        packed = None if name.startswith("..") else read_member(place.folder, name)
        if packed is None:
            raise
        return io.BytesIO(packed), f"{name_pack(place.folder)}/{name}"
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise NotFound(f"the output went to {path}, which is not a file")
    return open(fd, "rb", buffering=0), path
