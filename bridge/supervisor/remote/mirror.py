"""What a program writes on a node, told over the control channel: the bytes behind what was told before."""

from __future__ import annotations

import base64
import os
import time
from typing import Any, Optional

PART = 1 << 16
"""Bytes of one message."""
PAUSE_SECONDS = 0.25
_AT_ONCE = 16


class Tail:
    """A file that grows; it may appear later. Standard output and error that are one file are one of these."""

    def __init__(self, path: str, stream: str, append: bool) -> None:
        self.stream = stream
        self._path = path
        self._fd = -1
        self._offset = _size(path) if append else 0

    def read(self) -> bytes:
        """The next bytes; none where there are none yet."""
        try:
            if self._fd < 0:
                self._fd = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            data = os.pread(self._fd, PART, self._offset)
        except OSError:
            return b""
        self._offset += len(data)
        return data

    def close(self) -> None:
        """Close it."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


class Mirror:
    """The output of one node run; `messages` are for whoever keeps it."""

    def __init__(self, output: str, error: str, append: bool) -> None:
        self._tails = [Tail(output, "output", append)] if output else []
        if error and error != output:
            self._tails.append(Tail(error, "error", append))
        self._behind = False
        self._next = 0.0

    @property
    def pause(self) -> Optional[float]:
        """How long to wait before the next look; None where there is nothing to look for."""
        if not self._tails:
            return None
        return 0.0 if self._behind else PAUSE_SECONDS

    def look(self) -> list[dict[str, Any]]:
        """The messages about what is new, not too many at once."""
        if not self._behind and time.monotonic() < self._next:
            return []
        found: list[dict[str, Any]] = []
        self._behind = False
        for tail in self._tails:
            for _ in range(_AT_ONCE):
                data = tail.read()
                if not data:
                    break
                found.append({"log": {"stream": tail.stream, "data": base64.b64encode(data).decode()}})
            else:
                self._behind = True
        self._next = time.monotonic() + PAUSE_SECONDS / 2
        return found

    def finish(self) -> list[dict[str, Any]]:
        """The next messages behind the program's end; none when all was told."""
        self._behind = True
        found = self.look()
        if not found:
            for tail in self._tails:
                tail.close()
            self._tails = []
        return found


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
