"""Searches a log from its end: some blocks of it for each request, in a process that can be killed.

The caller goes on where an answer ended, until `begin` is where it wants to be. So a request takes no longer in a
large log than in a small one, and a search ends when its caller asks for no more.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.contract import LogPart
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.log_matching import LineMatch, make_matcher

BLOCK = 2 << 20
"""Bytes that are matched at once."""
SECONDS = 1.0
"""After which a request begins no further block."""
BLOCK_SECONDS = 3.0
"""For one block. It takes some 30 ms, unless the regular expression explodes."""
MOST_TEXT = 4 << 20
"""Bytes of matching lines in one answer."""
SLOW = "the pattern takes too long on the lines before this place"

ReadPart = Callable[[int, int], Awaitable[LogPart]]
"""Reads bytes of the log: from where, how many at most."""


@dataclass(frozen=True)
class LogPattern:
    """What is searched for, in the bytes from `begin` to `end` (None: the log's end); the newest `limit` lines."""

    pattern: str
    invert: bool = False
    begin: int = 0
    end: int | None = None
    limit: int = 1000


@dataclass
class LogMatches:
    """Lines that match, the newest first. All of the log from `begin` to `end` was searched, and no more.

    `first` is the first byte that there is still; `trouble` says why the search cannot go on.
    """

    begin: int
    end: int
    size: int
    first: int = 0
    path: str = ""
    trouble: str = ""
    lines: list[LineMatch] = field(default_factory=list)


async def search_log(read: ReadPart, wanted: LogPattern) -> LogMatches:
    """Search some blocks. Raises InvalidRequest for a wrong pattern, and what `read` raises."""
    try:
        make_matcher(wanted.pattern)
    except ValueError as error:
        raise InvalidRequest(str(error), remedy="the syntax is that of Python's re") from None
    start = await read(0, 1)
    end = start.size if wanted.end is None else min(wanted.end, start.size)
    found = LogMatches(end, end, start.size, start.gap, start.path)
    async with _match_process(wanted) as process:
        until, room = time.monotonic() + SECONDS, MOST_TEXT
        while found.begin > max(wanted.begin, found.first) and time.monotonic() < until and room > 0:
            if not await _search_block(read, wanted, found, process):
                break
            room = MOST_TEXT - sum(len(line.data) for line in found.lines)
    return found


async def _search_block(
    read: ReadPart, wanted: LogPattern, found: LogMatches, process: asyncio.subprocess.Process
) -> bool:
    """Search the block before what was searched already. False where the search is to end."""
    offset = max(wanted.begin, found.first, found.begin - BLOCK)
    part = await read(offset, found.begin - offset)
    found.size, found.first = part.size, max(found.first, part.offset if part.gap else 0)
    data = part.data[: max(0, found.begin - part.offset)]
    offset = part.offset
    if not data:
        # It was emptied, or rotated away, meanwhile.
        found.begin = min(found.begin, offset)
        return False
    if offset > max(wanted.begin, found.first):
        # The line that the block cuts is searched with the one before; of one that is longer than a block, a part is.
        cut = data.find(b"\n") + 1
        if cut < len(data):
            offset, data = offset + cut, data[cut:]
    try:
        lines = await asyncio.wait_for(_match(process, offset, data), BLOCK_SECONDS)
    except (TimeoutError, EOFError, ConnectionError):
        found.trouble = SLOW
        return False
    room = wanted.limit - len(found.lines)
    found.lines += lines[:room]
    found.begin = lines[room - 1].begin if len(lines) > room else offset
    return len(found.lines) < wanted.limit


@asynccontextmanager
async def _match_process(wanted: LogPattern) -> AsyncIterator[asyncio.subprocess.Process]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "overspan.bridge.controller.views.match_process",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        limit=BLOCK * 16,
    )
    assert process.stdin is not None
    pipe = process.stdin.get_extra_info("pipe")
    if pipe is not None and hasattr(fcntl, "F_SETPIPE_SZ"):
        # A block goes through in few steps; above the limit of unprivileged users the pipe stays as it is.
        with suppress(OSError):
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, 1 << 20)
    try:
        process.stdin.write(json.dumps({"pattern": wanted.pattern, "invert": wanted.invert}).encode() + b"\n")
        yield process
    finally:
        process.stdin.close()
        if process.returncode is None:
            try:
                process.kill()
            except ProcessLookupError:
                pass
            await process.wait()


async def _match(process: asyncio.subprocess.Process, offset: int, data: bytes) -> list[LineMatch]:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write(b"%d %d\n" % (offset, len(data)) + data)
    await process.stdin.drain()
    answer = await process.stdout.readline()
    if not answer:
        raise EOFError
    rows: list[list[Any]] = json.loads(answer)
    return [LineMatch(begin, end, text.encode("latin-1")) for begin, end, text in rows]
