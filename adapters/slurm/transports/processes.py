"""Runs a program on this machine with input, output and a time limit."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from overspan.adapters.identities import Identity

MOST = 256 << 20
"""Bytes of a stream that another user's process may send: no answer is longer, and the memory must not fill up."""
REAP_SECONDS = 5.0
"""Seconds to wait for a killed process: one in an uninterruptible system call ends only when that returns."""
_PART = 1 << 16


class Ended(NamedTuple):
    """The exit code and output of a process; `code` is None if it was killed at its time limit."""

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
    """Run a process with input, and collect its output until it ends. Raises OSError if it cannot be started.

    The process is killed at the time limit, on endless output, or if the caller is cancelled; its output until then is
    returned. With an identity it changes to that user and that user's groups before exec. Other processes that keep its
    pipes open (ssh's master, a grandchild in a session of its own) are not waited for.
    """
    loop = asyncio.get_running_loop()
    most = MOST if identity is not None else sys.maxsize
    with contextlib.ExitStack() as undo:
        pipes = [_open_pipe(undo) for _ in range(3)]
        ends = (pipes[0].read, pipes[1].write, pipes[2].write)
        process = await _start(argv, ends, environment, identity)
        for end in ends:
            end.close()

        def kill() -> None:
            # The whole process group: children would go on with the call.
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

        out, err = (_Intake(loop, pipe.read, most, kill) for pipe in pipes[1:])
        feed = _Feed(loop, pipes[0].write, stdin)
        late = False
        try:
            async with asyncio.timeout(timeout):
                await process.wait()
        except TimeoutError:
            late = True
        finally:
            feed.stop()
            if process.returncode is None:
                kill()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(REAP_SECONDS):
                        await process.wait()
            for intake in (out, err):
                intake.finish()
        late = late or max(len(out.data), len(err.data)) >= most
        return Ended(None if late else process.returncode, bytes(out.data), bytes(err.data))


async def _start(
    argv: Sequence[str], ends: Sequence[_End], environment: Mapping[str, str] | None, identity: Identity | None
) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=ends[0].fd,
        stdout=ends[1].fd,
        stderr=ends[2].fd,
        env=None if environment is None else dict(environment),
        start_new_session=True,
        **_become(identity),
    )


def _become(identity: Identity | None) -> dict[str, Any]:
    """Arguments that make a child run as another user: ids, groups, and a folder that every user may enter."""
    if identity is None:
        return {}
    return {"user": identity.uid, "group": identity.gid, "extra_groups": list(identity.groups), "cwd": "/"}


@dataclass
class _End:
    """One end of a pipe, closed once."""

    fd: int

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class _Pipe(NamedTuple):
    read: _End
    write: _End


def _open_pipe(undo: contextlib.ExitStack) -> _Pipe:
    pipe = _Pipe(*map(_End, os.pipe()))
    for end in pipe:
        undo.callback(end.close)
    return pipe


class _Intake:
    """Reads a stream as it comes. If it gets too long, the process is killed and the rest is dropped."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: _End, most: int, kill: Callable[[], None]) -> None:
        self.data = bytearray()
        self._loop, self._end, self._most, self._kill = loop, end, most, kill
        os.set_blocking(end.fd, False)
        loop.add_reader(end.fd, self._take)

    def finish(self) -> None:
        """Read what is in the pipe now, and close this end, even if another process keeps the other one open."""
        while self._end.fd >= 0 and len(self.data) < self._most and self._take():
            pass
        self._close()

    def _take(self) -> bool:
        try:
            data = os.read(self._end.fd, _PART)
        except BlockingIOError:
            return False
        if not data:
            self._close()
        elif len(self.data) < self._most:
            self.data += data
        else:
            self._kill()
        return bool(data)

    def _close(self) -> None:
        if self._end.fd >= 0:
            self._loop.remove_reader(self._end.fd)
        self._end.close()


class _Feed:
    """Writes a process's input as fast as it reads. A process that ends before reading all is no error here."""

    def __init__(self, loop: asyncio.AbstractEventLoop, end: _End, data: bytes) -> None:
        self._loop, self._end, self._left = loop, end, memoryview(data)
        os.set_blocking(end.fd, False)
        loop.add_writer(end.fd, self._give)

    def _give(self) -> None:
        try:
            self._left = self._left[os.write(self._end.fd, self._left[:_PART]) :] if self._left else self._left
        except BlockingIOError:
            return
        except OSError:
            self._left = self._left[:0]
        if not self._left:
            self.stop()

    def stop(self) -> None:
        """Close the input."""
        if self._end.fd >= 0:
            self._loop.remove_writer(self._end.fd)
        self._end.close()
