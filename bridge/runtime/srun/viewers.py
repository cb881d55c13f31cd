"""Viewers of a running step (`sattach`): they get the ranks' output, with a little of what came before.

srun listens on a socket in the run directory, which only the user can enter, so viewers need no authentication. The
address is a path through /proc, as a run directory's own may be too long for a socket's (unix(7): 108 bytes).
"""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Optional

from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import AuthenticationError, Channel, Frame

_KEPT_FRAMES = 128
_KEPT_BYTES = 1 << 17
_MOST_WAITING = 4 << 20
"""Bytes that a viewer may leave unread; one that takes no more must not fill srun's memory."""
_MOST_VIEWERS = 64
_LAST_SECONDS = 0.5
"""How long srun waits at its end for viewers that are behind."""


class Viewers:
    """The connections of those who watch one step of `count` ranks; without a socket there can be none."""

    def __init__(self, folder: str, step: int, count: int) -> None:
        self._path = os.path.join(folder, f"{step}.socket")
        self._count = count
        self._channels: dict[int, Channel] = {}
        self._kept: deque[Frame] = deque()
        self._size = 0
        self._listener: Optional[socket.socket] = _listen(self._path)

    @property
    def waits(self) -> dict[int, bool]:
        """The descriptors to be read, and whether something waits to be written there."""
        found = {fd: bool(channel.waiting) for fd, channel in self._channels.items()}
        if self._listener is not None:
            found[self._listener.fileno()] = False
        return found

    def receive(self, fd: int) -> list[Frame]:
        """Take in what came at a descriptor; gives the words of a viewer."""
        if self._listener is not None and fd == self._listener.fileno():
            self._accept()
            return []
        channel = self._channels[fd]
        channel.flush()
        try:
            frames = channel.receive()
        except AuthenticationError:
            channel.closed, frames = True, []
        if channel.closed:
            self._drop(fd)
        return frames

    def show(self, frame: Frame) -> None:
        """Pass on bytes of a rank, and keep them for those who come later."""
        self._kept.append(frame)
        self._size += len(frame.body)
        while len(self._kept) > _KEPT_FRAMES or self._size > _KEPT_BYTES:
            self._size -= len(self._kept.popleft().body)
        self._send_all(frame)

    def close(self, code: int) -> None:
        """Tell all viewers that the step ended with this exit code, and accept no new ones."""
        self._send_all(Frame(wire.DONE, b"%d" % code))
        deadline = time.monotonic() + _LAST_SECONDS
        while time.monotonic() < deadline:
            behind = [channel for channel in self._channels.values() if channel.waiting and not channel.closed]
            if not behind:
                break
            for channel in select.select([], behind, [], _LAST_SECONDS)[1]:
                channel.flush()
        for fd in list(self._channels):
            self._drop(fd)
        if self._listener is not None:
            self._listener.close()
            _remove(self._path)

    def _accept(self) -> None:
        assert self._listener is not None
        try:
            connection, _ = self._listener.accept()
        except OSError:
            return
        if len(self._channels) >= _MOST_VIEWERS:
            connection.close()
            return
        channel = Channel(connection)
        self._channels[channel.fileno()] = channel
        channel.send(wire.STARTED, json.dumps({"count": self._count}).encode())
        for frame in self._kept:
            channel.send(frame.kind, frame.body)

    def _send_all(self, frame: Frame) -> None:
        for fd, channel in list(self._channels.items()):
            channel.send(frame.kind, frame.body)
            if channel.closed or channel.waiting > _MOST_WAITING:
                self._drop(fd)

    def _drop(self, fd: int) -> None:
        self._channels.pop(fd).close()


def connect_step(folder: str, step: int) -> Channel:
    """Connect to the srun of a running step. Raises OSError where none listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _reach(os.path.join(folder, f"{step}.socket")) as address:
            connection.connect(address)
        return Channel(connection)
    except BaseException:
        connection.close()
        raise


def _listen(path: str) -> Optional[socket.socket]:
    """A socket at a path; None where there cannot be one: the step runs all the same."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove(path)
        with _reach(path) as address:
            listener.bind(address)
        listener.listen(8)
        listener.setblocking(False)
    except OSError:
        listener.close()
        return None
    return listener


@contextmanager
def _reach(path: str) -> Iterator[str]:
    """A short address for a path."""
    folder = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(path)}"
    finally:
        os.close(folder)


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
