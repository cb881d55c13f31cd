"""An agent's folder on its node's own disk: for the hosts file and the like.

All of a user's are in one private folder. Each is locked by its agent; what a killed agent left is removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence
from typing import NamedTuple


class NodeFolder(NamedTuple):
    """A folder that nobody else can read, and the descriptor that holds its lock."""

    path: str
    lock: int

    def remove(self) -> None:
        """Remove it with all that is in it."""
        _empty(self.path)
        os.close(self.lock)


def make_folder(places: Sequence[str]) -> NodeFolder:
    """Make a folder below the first place that can be used. Raises OSError when none can."""
    for place in places:
        parent = os.path.join(place, f"overspan-nodes-{os.getuid()}")
        try:
            if not place or not _own(parent):
                continue
            _sweep(parent)
            return _make(parent)
        except OSError:
            continue
    raise OSError(f"no folder of this node can be written: {', '.join(filter(None, places))}")


def _own(parent: str) -> bool:
    """Have the user's folder there; False when it is somebody else's, or open to others."""
    try:
        os.mkdir(parent, 0o700)
    except FileExistsError:
        pass
    found = os.lstat(parent)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def _make(parent: str) -> NodeFolder:
    while True:
        path = os.path.join(parent, os.urandom(8).hex())
        os.mkdir(path, 0o700)
        # Before it is locked, another agent may take it for a dead one's.
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.isdir(path):
            return NodeFolder(path, lock)
        os.close(lock)


def _sweep(parent: str) -> None:
    """Remove the folders of agents that are gone."""
    for name in os.listdir(parent):
        path = os.path.join(parent, name)
        try:
            lock = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            _empty(path)
        except OSError:
            continue
        finally:
            os.close(lock)


def _empty(path: str) -> None:
    """Remove a folder of files and empty folders."""
    for name in os.listdir(path):
        inner = os.path.join(path, name)
        try:
            (os.rmdir if os.path.isdir(inner) else os.unlink)(inner)
        except OSError:
            continue
    try:
        os.rmdir(path)
    except OSError:
        pass
