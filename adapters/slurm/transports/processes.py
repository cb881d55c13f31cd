"""Running a program of this machine with input, output and a time limit."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Ended(NamedTuple):
    """What a process left; `code` is None when its time was over first."""

    code: int | None
    out: bytes
    err: bytes


async def feed_process(
    argv: Sequence[str], stdin: bytes, timeout: float, environment: Mapping[str, str] | None = None
) -> Ended:
    """Start a process, give it its input and take its output. OSError when it cannot be started.

    It is killed when the time is over or the caller is cancelled; what it wrote until then is kept.
    """
    process = await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        env=None if environment is None else dict(environment),
        start_new_session=True,
    )
    assert process.stdin is not None and process.stdout is not None and process.stderr is not None
    out, err = bytearray(), bytearray()
    streams = (_collect(process.stdout, out), _collect(process.stderr, err), _feed(process.stdin, stdin))
    late = False
    try:
        async with asyncio.timeout(timeout):
            await asyncio.gather(*streams)
            await process.wait()
    except TimeoutError:
        late = True
    finally:
        if process.returncode is None:
            # Its children too: they hold the pipes.
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    return Ended(None if late else process.returncode, bytes(out), bytes(err))


async def _collect(stream: asyncio.StreamReader, into: bytearray) -> None:
    while data := await stream.read(1 << 16):
        into += data


async def _feed(stream: asyncio.StreamWriter, data: bytes) -> None:
    try:
        stream.write(data)
        await stream.drain()
        stream.close()
        await stream.wait_closed()
    except (BrokenPipeError, ConnectionResetError):
        # It ended without reading all; its code tells why.
        pass
