"""One srun as the supervisor holds it: the control channel, what srun says, and its end."""

from __future__ import annotations

import os
import select
import subprocess
from collections import deque
from collections.abc import Mapping, Sequence
from typing import IO, Any, Optional

from overspan.bridge.runtime.slurm.channel import LineReader

_READ_SIZE = 1 << 16
_KEPT_LINES = 20


class Srun:
    """A running srun. `watch` its descriptors in a poll object; `handle` what poll found."""

    def __init__(self, words: Sequence[str], environment: Mapping[str, str], poller: select.poll, umask: int) -> None:
        """Start it; OSError when there is no such program or no process can be made. Steps inherit its umask."""
        self._process = subprocess.Popen(
            words,
            env=dict(environment),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            close_fds=True,
            umask=umask,
        )
        self._poller = poller
        self._input = _take(self._process.stdin)
        self._output = _take(self._process.stdout)
        self._errors = _take(self._process.stderr)
        self._unsent = b""
        self._reader = LineReader()
        self._text = b""
        self._new: list[str] = []
        self.messages: list[dict[str, Any]] = []
        """Messages of the agent that were not taken yet."""
        self.said: deque[str] = deque(maxlen=_KEPT_LINES)
        """The last lines of srun's own, or of the agent's standard error."""
        poller.register(self._output, select.POLLIN)
        poller.register(self._errors, select.POLLIN)

    def send(self, line: bytes) -> bool:
        """Send a line to the agent as soon as it can be taken; False when the channel is closed."""
        if self._input < 0:
            return False
        self._unsent += line
        self._flush()
        return self._input >= 0

    def handle(self, ready: int) -> bool:
        """Read or write what poll found ready; False when the descriptor is another's."""
        if ready < 0:
            return False
        if ready == self._input:
            self._flush()
        elif ready == self._output:
            data = _read(ready)
            self.messages.extend(self._reader.feed(data))
            if not data:
                self._output = self._close(ready)
        elif ready == self._errors:
            data = _read(ready)
            self._note(data)
            if not data:
                self._errors = self._close(ready)
        else:
            return False
        return True

    def take_lines(self) -> list[str]:
        """Lines of srun's standard error that were not taken before."""
        new, self._new = self._new, []
        return new

    @property
    def status(self) -> Optional[int]:
        """The exit code, minus a signal, once it has ended and everything it said was read; None before."""
        if self._process.poll() is None or self._output >= 0 or self._errors >= 0:
            return None
        return self._process.returncode

    @property
    def behind(self) -> bool:
        """Whether something is still to be sent."""
        return bool(self._unsent)

    def close_input(self) -> None:
        """End the channel: the agent ends what it watches."""
        if self._input >= 0:
            self._forget_input()

    def signal(self, number: int) -> None:
        """Signal srun itself. TERM has Slurm kill the step at once (measured on 22.05)."""
        self._process.send_signal(number)

    def release(self) -> None:
        """Close what is open, once it has ended or is given up."""
        self.close_input()
        if self._output >= 0:
            self._output = self._close(self._output)
        if self._errors >= 0:
            self._errors = self._close(self._errors)
        # A later end does not matter: without this, Popen complains when it is dropped.
        if self._process.poll() is None:
            self._process.returncode = 0

    def _flush(self) -> None:
        try:
            while self._unsent:
                self._unsent = self._unsent[os.write(self._input, self._unsent) :]
        except BlockingIOError:
            self._poller.register(self._input, select.POLLOUT)
            return
        except OSError:
            self._forget_input()
            return
        self._unregister(self._input)

    def _forget_input(self) -> None:
        self._unsent = b""
        self._input = self._close(self._input)

    def _note(self, data: bytes) -> None:
        *lines, self._text = (self._text + data).split(b"\n")
        if not data and self._text:
            lines, self._text = [self._text], b""
        for line in lines:
            text = line.decode("utf-8", "replace").strip()
            if text:
                self._new.append(text)
                self.said.append(text)

    def _close(self, fd: int) -> int:
        self._unregister(fd)
        os.close(fd)
        return -1

    def _unregister(self, fd: int) -> None:
        try:
            self._poller.unregister(fd)
        except KeyError:
            pass


def _take(pipe: Optional[IO[bytes]]) -> int:
    """A descriptor of this process's own in place of a pipe's file object."""
    assert pipe is not None
    fd = os.dup(pipe.fileno())
    pipe.close()
    os.set_blocking(fd, False)
    return fd


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, _READ_SIZE)
    except OSError:
        return b""
