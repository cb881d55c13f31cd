"""A terminal to measure programs in: a pty whose output is read all the time, with the times of its pieces."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from benchmarks.installation import proportional_memory, until

LINES, COLUMNS = 48, 160
_QUIET = 0.3
"""Seconds without output after which a screen counts as painted."""


class Terminal:
    """A program on a terminal of that size; ended by `q`, else by a signal, at the end of the `with` block."""

    def __init__(
        self, words: Sequence[str], environment: Mapping[str, str], lines: int = LINES, columns: int = COLUMNS
    ) -> None:
        self._words = words
        self._size = struct.pack("HHHH", lines, columns, 0, 0)
        self._environment = {**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        self._pieces: list[tuple[float, bytes]] = []
        """What was written, with the times."""

    def __enter__(self) -> Terminal:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, self._size)
        self._process = subprocess.Popen(
            self._words,
            stdin=slave,
            stdout=slave,
            stderr=slave,
            env=self._environment,
            start_new_session=True,
        )
        os.close(slave)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with contextlib.suppress(OSError):
            self.press("q")
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join(5)
        os.close(self._master)

    def _read(self) -> None:
        # Reading fails when the program has ended.
        with contextlib.suppress(OSError):
            while data := os.read(self._master, 1 << 16):
                self._pieces.append((time.perf_counter(), data))

    @property
    def written(self) -> int:
        """Bytes that were written so far."""
        return sum(len(data) for _, data in self._pieces)

    @property
    def processor(self) -> float:
        """Processor time of the program so far, seconds: of all threads, to the nanosecond."""
        total = 0
        for task in Path(f"/proc/{self._process.pid}/task").iterdir():
            with contextlib.suppress(OSError):
                total += int((task / "schedstat").read_text().split()[0])
        return total / 1e9

    @property
    def memory(self) -> float:
        """Its memory (PSS), megabytes."""
        return proportional_memory([self._process.pid])

    def press(self, key: str) -> None:
        """Type."""
        os.write(self._master, key.encode())

    def wait_for(self, text: str, seconds: float = 60) -> None:
        """Wait until a text was written; TimeoutError where it was not."""
        found = text.encode()
        until(lambda: found in b"".join(data for _, data in self._pieces), seconds)

    def wait_quiet(self) -> None:
        """Wait until nothing is written any more."""
        until(lambda: bool(self._pieces) and time.perf_counter() - self._pieces[-1][0] > _QUIET, 60)

    def time_key(self, key: str) -> float:
        """Milliseconds from a key to the first bytes that it brings about."""
        self.wait_quiet()
        count, begun = len(self._pieces), time.perf_counter()
        self.press(key)
        until(lambda: len(self._pieces) > count, 10)
        return (self._pieces[count][0] - begun) * 1000
