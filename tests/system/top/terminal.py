"""A terminal of its own for a command: a pty with job control, whose output is read all the time."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.system.top.screens import Screen
from tests.waiting import wait_until

SPAN = str(Path(sys.executable).with_name("span"))
_LEAD = "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
"""Makes the terminal the controlling one of its session, and becomes the command."""


class PtyTerminal:
    """A terminal with a program on it."""

    def __init__(self, columns: int = 80, lines: int = 24) -> None:
        self.screen = Screen(columns, lines)
        self.written = 0
        """Bytes that were read from the program."""
        self._master, self._slave = pty.openpty()
        self._set_size()
        self.attributes = termios.tcgetattr(self._slave)
        """How the terminal was before the program."""
        self._reads = threading.Event()
        self._reads.set()
        self._stop, self._stopper = os.pipe()
        self._closed = False
        self._lock = threading.Lock()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self.process: subprocess.Popen[bytes]

    def start(self, words: Sequence[str], environment: Mapping[str, str], leads: bool = True) -> None:
        """Start a program; without `leads` the terminal is not its controlling one."""
        command = [sys.executable, "-c", _LEAD, *words] if leads else [*words]
        slave, own = self._slave, dict(environment)
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, env=own, start_new_session=True
        )

    def _read(self) -> None:
        while not self._closed:
            self._reads.wait()
            if self._stop in select.select([self._master, self._stop], [], [])[0]:
                return
            if not self._reads.is_set():
                continue
            # A terminal that nobody has open cannot be read.
            with contextlib.suppress(OSError):
                data = os.read(self._master, 1 << 16)
                with self._lock:
                    self.written += len(data)
                    self.screen.feed(data)

    def _set_size(self) -> None:
        size = struct.pack("HHHH", self.screen.lines, self.screen.columns, 0, 0)
        fcntl.ioctl(self._master, termios.TIOCSWINSZ, size)

    # --- what a user does ---------------------------------------------------------------------------------------------

    def press(self, keys: str | bytes) -> None:
        """Type."""
        os.write(self._master, keys.encode() if isinstance(keys, str) else keys)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size; the kernel tells the program."""
        with self._lock:
            self.screen.resize(columns, lines)
        self._set_size()

    def stop_reading(self) -> None:
        """Take nothing any more, as a line that hangs."""
        self._reads.clear()

    def go_on_reading(self) -> None:
        """Take what comes."""
        self._reads.set()

    def hang_up(self) -> None:
        """Close the terminal."""
        self._closed = True
        self._reads.set()
        os.write(self._stopper, b"\0")
        self._reader.join()
        os.close(self._slave)
        os.close(self._master)

    # --- what is seen -------------------------------------------------------------------------------------------------

    def read(self) -> str:
        """What the screen shows now."""
        with self._lock:
            return self.screen.text

    def wait_for(self, *texts: str, seconds: float = 20) -> str:
        """Wait until the screen shows all texts; gives what it shows."""
        try:
            wait_until(lambda: all(text in self.read() for text in texts), seconds)
        except AssertionError:
            raise AssertionError(f"{texts} never came:\n{self.read()}") from None
        return self.read()

    def wait_shown(self, holds: Callable[[Screen], Any], what: str, seconds: float = 20) -> None:
        """Wait until something holds of the screen."""

        def look() -> Any:
            with self._lock:
                return holds(self.screen)

        try:
            wait_until(look, seconds)
        except AssertionError:
            raise AssertionError(f"{what}:\n{self.read()}") from None

    def wait_quiet(self, seconds: float = 0.5) -> None:
        """Wait until nothing was written for a while."""
        last, since = self.written, time.monotonic()

        def is_quiet() -> bool:
            nonlocal last, since
            if self.written != last:
                last, since = self.written, time.monotonic()
            return time.monotonic() - since >= seconds

        wait_until(is_quiet, 20)

    def wait_end(self, seconds: float = 20) -> int:
        """Wait for the program's end; gives its exit code, and has read all that it wrote."""
        code: int = self.process.wait(seconds)
        if not self._closed:
            wait_until(lambda: not select.select([self._master], [], [], 0)[0], 5)
        return code

    @property
    def restored(self) -> bool:
        """Whether the terminal's own settings are as they were."""
        return termios.tcgetattr(self._slave) == self.attributes

    @property
    def memory(self) -> int:
        """The program's memory, KiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS")))

    def close(self) -> None:
        """End everything."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        if not self._closed:
            self.hang_up()
        os.close(self._stop)
        os.close(self._stopper)


@contextmanager
def open_terminal(
    words: Sequence[str],
    environment: Mapping[str, str],
    size: tuple[int, int] = (80, 24),
    leads: bool = True,
) -> Iterator[PtyTerminal]:
    """A terminal with `span WORDS` on it; another command where it is a path."""
    terminal = PtyTerminal(*size)
    command = [*words] if words and words[0].startswith("/") else [SPAN, *words]
    terminal.start(command, environment, leads)
    try:
        yield terminal
    finally:
        terminal.close()
