"""Running a program of this machine with input, output and a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.identities import Identity

MOST = 256 << 20
"""Bytes of a stream that a process of another user may send: more of it is no answer, and would fill the memory."""


class Ended(NamedTuple):
    """What a process left; `code` is None when its time was over first."""

    code: int | None
    out: bytes
    err: bytes


async def feed_process(
    argv: Sequence[str],
    stdin: bytes,
    timeout: float,
    environment: Mapping[str, str] | None = None,
    identity: Identity | None = None,
) -> Ended:
    """Start a process, give it its input and take its output. OSError when it cannot be started.

    It is killed when the time is over, the output is without end or the caller is cancelled; what it wrote until then
    is kept. With an identity it is that user's process from before its program begins, with no group of this one's.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=None if environment is None else dict(environment),
        start_new_session=True,
        **_become(identity),
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    out, err = bytearray(), bytearray()
    most = MOST if identity is not None else sys.maxsize

    def end() -> None:
        # Its children too: they hold the pipes.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    streams = (_collect(process.stdout, out, most, end), _collect(process.stderr, err, most, end))
    late = False
    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*streams, _feed(process.stdin, stdin))
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        if process.returncode is None:
            end()
            await process.wait()
    late = late or max(len(out), len(err)) >= most
    return Ended(None if late else process.returncode, bytes(out), bytes(err))


def _become(identity: Identity | None) -> dict[str, Any]:
    """What makes a child another user's: number, groups, and a folder that everybody may be in."""
    if identity is None:
        return {}
    return {"user": identity.uid, "group": identity.gid, "extra_groups": list(identity.groups), "cwd": "/"}


async def _collect(stream: asyncio.StreamReader, into: bytearray, most: int, end: Callable[[], None]) -> None:
    """Take a stream in; one that is too long ends its process, and what is left in the pipe is dropped."""
    while data := await stream.read(1 << 16):
        if len(into) < most:
            into += data
        else:
            end()


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    try:
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        # It ended without reading all; its code tells why.
        pass
