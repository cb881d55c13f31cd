"""srun's terminal during a step with a pseudo terminal (`--pty`): raw, and always restored."""

from __future__ import annotations

import fcntl
import struct
import termios
import tty
from typing import Any, Optional


class RawTerminal:
    """Standard input as a raw terminal, where it is one; a context manager."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._before: Optional[list[Any]] = None

    def __enter__(self) -> RawTerminal:
        try:
            self._before = termios.tcgetattr(self._fd)
            tty.setraw(self._fd, termios.TCSADRAIN)
        except termios.error:
            self._before = None
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            termios.tcsetattr(self._fd, termios.TCSADRAIN, self._before)


def read_window(fd: int) -> tuple[int, int]:
    """Rows and columns of a terminal; zeros where it is none."""
    try:
        rows, columns, _, _ = struct.unpack("HHHH", fcntl.ioctl(fd, termios.TIOCGWINSZ, bytes(8)))
    except OSError:
        return 0, 0
    return rows, columns
