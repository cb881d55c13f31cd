"""Log files of native jobs and of groups' members: their paths, and their bytes."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.abilities import Written
from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.log_index import FileRange, Marks, find_marks, find_range
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.groups.handles import GroupHandle
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.adapters.slurm.transports.transport import FileChunk, Transport
from overspan.adapters.slurm.unshared.jobs import read_there
from overspan.bridge.model.errors import NotFound
from overspan.bridge.model.job import Job
from overspan.bridge.model.patterns import ARRAY_DEFAULT, BATCH_DEFAULT, FilenameFields, expand_filename

_KEPT = 5000
"""Jobs whose paths are cached."""
_KEPT_LISTS = 500
"""Run directories whose lists of files are cached."""
_LIST_PART = 4 << 20
"""Bytes of a list that one call reads."""
_FRESH = 0.5
"""Seconds for which a list is not read again, since following a log asks often."""
_OWN_ID = re.compile(r"%\d*[jJ]")


class Logs:
    """Reads logs by the paths that Slurm shows. Paths are cached, because Slurm forgets ended jobs."""

    def __init__(self, queries: Queries, shared_root: bool = True) -> None:
        self._queries = queries
        self._shared_root = shared_root
        self._groups = GroupLogs(queries.transport)
        self._paths: dict[str, tuple[str, str]] = {}

    async def read(self, request: LogRequest) -> LogPart:
        """Bytes of a log from an offset; a negative one counts from the end. NotFound if there is no such log.

        A batch script writes one file, on its first node.
        """
        handle = parse_any(request.handle)
        if isinstance(handle, GroupHandle):
            return await self._groups.read(handle, request)
        wanted = request.task in ("", handle.task) and request.node == 0
        if not wanted or request.attempt not in (None, handle.attempt):
            raise NotFound(f"job {handle.job} has no {request.stream} of task {request.task}, node {request.node}")
        path = (await self._find(handle))[request.stream == "error"]
        if not path or path == "/dev/null":
            raise NotFound(f"the {request.stream} of job {handle.job} goes to {path or 'no file'}")
        offset = request.offset
        if offset < 0:
            offset = max(0, (await self._read_part(handle, path, 0, 1)).size + offset)
        piece = await self._read_part(handle, path, offset, request.limit)
        return LogPart(piece.data, min(offset, piece.size), piece.size, path)

    async def _read_part(self, handle: Handle, path: str, offset: int, limit: int) -> FileChunk:
        """Bytes of a file; read on the job's node if the login node does not see it."""
        transport = self._queries.transport
        try:
            return await transport.read(path, offset, limit)
        except NotFound:
            if self._shared_root:
                raise
        return await read_there(transport, handle.name, path, offset, limit)

    async def _find(self, handle: Handle) -> tuple[str, str]:
        if handle.name not in self._paths:
            fields = await self._queries.describe(handle.name)
            if not fields and not handle.output:
                raise NotFound(
                    f"Slurm no longer knows job {handle.name}, and with it where its output is",
                    remedy="look in the folder from which it was submitted",
                )
            expected = handle.output, handle.error or handle.output
            self._paths[handle.name] = read_paths(fields) if fields else expected
            while len(self._paths) > _KEPT:
                del self._paths[next(iter(self._paths))]
        return self._paths[handle.name]


def find_written(text: str, shared: bool) -> Written:
    """A launch's working directory and log files, by its handle; `shared`: the cluster sees the submitter's files."""
    try:
        handle = parse_any(text)
    except NotFound:
        return Written()
    if isinstance(handle, GroupHandle):
        return Written() if shared else Written(handle.folder)
    return Written(handle.folder, handle.output, handle.error)


def expect_paths(job: Job, native: int, user: str) -> tuple[str, str]:
    """The paths of a job's output and error, with Slurm's patterns filled in (sbatch(1), FILENAME PATTERN).

    Empty if the pattern contains the first node's name or an element's own id, which are not known yet, and for an
    error that goes into the output.
    """
    task = job.spec.tasks[0]
    element = job.element.index if job.element is not None else None
    fields = FilenameFields(native, job.spec.name, user, array_job=native, element=element)
    folder = task.workdir or job.spec.origin.directory
    default = BATCH_DEFAULT if element is None else ARRAY_DEFAULT

    def fill(pattern: str) -> str:
        own = element is not None and _OWN_ID.search(pattern)
        return "" if own or "%N" in pattern else os.path.join(folder, expand_filename(pattern, fields))

    streams = task.streams
    return fill(streams.output or default), fill(streams.error) if streams.error else ""


def read_paths(fields: Mapping[str, str]) -> tuple[str, str]:
    """Output and error in the fields of `scontrol show job`; without StdErr the error goes into the output."""
    output = fields.get("StdOut", "")
    return output, fields.get("StdErr", "") or output


# --- groups ----------------------------------------------------------------------------------------------------------


@dataclass
class StreamList:
    """The lines of a list read so far, the offset behind them, and when it was read to its end (monotonic time)."""

    lines: list[Any] = field(default_factory=list)
    offset: int = 0
    read_at: float = -_FRESH


class GroupLogs:
    """Reads logs of groups by the list of files that their supervisor keeps; each list is read incrementally."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[str, StreamList] = {}

    async def read(self, handle: GroupHandle, request: LogRequest) -> LogPart:
        """Bytes of one node's part of a log. NotFound when there is none."""
        # All native jobs of a part share one list of files.
        folder = handle.part_folder(handle.part(request.task) if request.task else handle.parts[0])
        part = find_range(await self._list(folder), request)
        if part is None:
            what = f"task {request.task}, node {request.node}" if request.task else f"node {request.node}"
            raise NotFound(f"job {handle.job} has no {request.stream} of {what} yet")
        offset = request.offset
        if offset < 0:
            whole = (await self._transport.read(part.path, 0, 1)).size
            offset = max(0, _measure(whole, part.begin, part.end) + offset)
        # Bytes behind the part's end are of another attempt.
        limit = request.limit if part.end is None else max(0, min(request.limit, part.end - part.begin - offset))
        piece = await self._transport.read(part.path, part.begin + offset, limit)
        marks = await self._read_times(folder, part) if request.times else None
        return LogPart(piece.data, offset, _measure(piece.size, part.begin, part.end), part.path, marks=marks)

    async def _read_times(self, folder: str, part: FileRange) -> Marks | None:
        """The times at which a part of a file grew; None if its supervisor has not recorded them."""
        try:
            piece = await self._transport.read(f"{folder}/times.jsonl", 0, _LIST_PART)
        except NotFound:
            return None
        return find_marks(parse_lines(piece.data), part, folder)

    async def _list(self, folder: str) -> list[Any]:
        streams = self._known.setdefault(folder, StreamList())
        while time.monotonic() - streams.read_at >= _FRESH:
            try:
                piece = await self._transport.read(f"{folder}/streams.jsonl", streams.offset, _LIST_PART)
            except NotFound:
                break
            whole = piece.data.rfind(b"\n") + 1
            streams.lines += parse_lines(piece.data[:whole])
            streams.offset += whole
            if len(piece.data) < _LIST_PART:
                streams.read_at = time.monotonic()
        while len(self._known) > _KEPT_LISTS:
            del self._known[next(iter(self._known))]
        return streams.lines


def parse_lines(data: bytes) -> list[Any]:
    """The documents of these lines; a torn line is skipped."""
    found = []
    for line in data.splitlines():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def _measure(size: int, begin: int, end: int | None) -> int:
    """The size of a part of a file."""
    return max(0, (size if end is None else min(end, size)) - begin)
