"""Logs of a group's members, found by the list of files that their supervisor keeps in the run directory."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.contract import LogPart, LogRequest
from overspan.adapters.log_index import FileRange, Marks, find_marks, find_range
from overspan.adapters.slurm.handles import GroupHandle
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import NotFound

_PART = 4 << 20
_FRESH = 0.5
"""Seconds for which the list is cached, since following a log reads it often."""
_KEPT = 500


@dataclass
class StreamList:
    """The lines of a list read so far, the offset behind them, and when it was read to its end (monotonic time)."""

    lines: list[Any] = field(default_factory=list)
    offset: int = 0
    read_at: float = -_FRESH


class GroupLogs:
    """Reads logs of groups; each run directory's list is read incrementally."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._known: dict[str, StreamList] = {}

    async def read(self, handle: GroupHandle, request: LogRequest) -> LogPart:
        """Bytes of one node's part of a log. NotFound when there is none."""
        part = find_range(await self._list(handle.folder), request)
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
        marks = await self._read_times(handle.folder, part) if request.times else None
        return LogPart(piece.data, offset, _measure(piece.size, part.begin, part.end), part.path, marks=marks)

    async def _read_times(self, folder: str, part: FileRange) -> Marks | None:
        """The times at which a part of a file grew; None if its supervisor has not recorded them."""
        try:
            piece = await self._transport.read(f"{folder}/times.jsonl", 0, _PART)
        except NotFound:
            return None
        return find_marks(parse_lines(piece.data), part, folder)

    async def _list(self, folder: str) -> list[Any]:
        streams = self._known.setdefault(folder, StreamList())
        while time.monotonic() - streams.read_at >= _FRESH:
            try:
                piece = await self._transport.read(f"{folder}/streams.jsonl", streams.offset, _PART)
            except NotFound:
                break
            whole = piece.data.rfind(b"\n") + 1
            streams.lines += parse_lines(piece.data[:whole])
            streams.offset += whole
            if len(piece.data) < _PART:
                streams.read_at = time.monotonic()
        while len(self._known) > _KEPT:
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
