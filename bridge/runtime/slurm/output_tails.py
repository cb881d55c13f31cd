"""Tails a program's output files, and looks for its readiness file: the agent sends both over the control channel."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, Optional

from overspan.bridge.runtime.slurm.channel import RemoteLaunch
from overspan.bridge.runtime.slurm.file_parts import encode_part, name_log

PART = 1 << 16
"""Bytes of one message."""
PAUSE_SECONDS = 0.25
_AT_ONCE = 16


class Tail:
    """One growing file, which may appear later, and the name under which it is sent."""

    def __init__(self, path: str, name: str, append: bool) -> None:
        self.name = name
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
        """Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def tail_streams(launch: RemoteLaunch) -> list[Tail]:
    """The tails of a node run. Output and error in the same file have one."""
    paths = {"output": launch.stdout, "error": launch.stderr if launch.stderr != launch.stdout else ""}
    return [Tail(path, name_log(launch.key, stream), launch.append) for stream, path in paths.items() if path]


class FileWait:
    """Looks for a file every `period` seconds until it is there; an empty path is never looked for."""

    def __init__(self, path: str, period: float) -> None:
        self._path = path
        self._period = period
        self._next = 0.0

    @property
    def pause(self) -> Optional[float]:
        """How long to wait before the next look; None where there is nothing to look for."""
        return max(0.0, self._next - time.monotonic()) if self._path else None

    def look(self) -> list[dict[str, Any]]:
        """The message that it is there, once."""
        now = time.monotonic()
        if not self._path or now < self._next:
            return []
        self._next = now + self._period
        if not os.path.exists(self._path):
            return []
        self._path = ""
        return [{"ready": {"at": round(time.time(), 6)}}]


class OutputTails:
    """Output and readiness file of one node run, as messages of the control channel."""

    def __init__(self, tails: Sequence[Tail], awaited: FileWait) -> None:
        self._awaited = awaited
        self._tails = list(tails)
        self._behind = False
        self._next = 0.0

    @property
    def pause(self) -> Optional[float]:
        """How long to wait before the next look; None where there is nothing to look for."""
        pauses = [pause for pause in (self._pause_tails(), self._awaited.pause) if pause is not None]
        return min(pauses) if pauses else None

    def _pause_tails(self) -> Optional[float]:
        if not self._tails:
            return None
        return 0.0 if self._behind else PAUSE_SECONDS

    def look(self) -> list[dict[str, Any]]:
        """The messages about what is new, not too many at once."""
        found = self._awaited.look()
        if not self._behind and time.monotonic() < self._next:
            return found
        self._behind = False
        for tail in self._tails:
            for _ in range(_AT_ONCE):
                data = tail.read()
                if not data:
                    break
                found.append(encode_part(tail.name, data))
            else:
                self._behind = True
        self._next = time.monotonic() + PAUSE_SECONDS / 2
        return found

    def finish(self) -> list[dict[str, Any]]:
        """The next messages after the program's end; none when everything was sent."""
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
