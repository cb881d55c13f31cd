"""An agent's folder on its node's own disk: for the hosts file and the like.

All of a user's are in one private folder. Each is locked by its agent; what a killed agent left is removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Sequence
from typing import Callable

from overspan.bridge.model.records import NamedTuple

_TRIES = 100


class NodeFolder(NamedTuple):
    """A private folder (0700), and the descriptor that holds its lock."""

    path: str
    lock: int

    def remove(self) -> None:
        """Remove it with all that is in it, and the user's folder when it was the last one."""
        _empty(self.path)
        os.close(self.lock)
        try:
            os.rmdir(os.path.dirname(self.path))
        except OSError:
            pass


def make_folder(places: Sequence[str]) -> NodeFolder:
    """Make a folder below the first place that can be used. Raises OSError when none can."""
    for place in places:
        parent = name_parent(place)
        for _ in range(_TRIES):
            try:
                if not place or not _own(parent):
                    break
                _sweep(parent)
                return _make(parent)
            except FileNotFoundError:
                # The last one that was there has removed it meanwhile.
                continue
            except OSError:
                break
    raise OSError(f"no folder of this node can be written: {', '.join(filter(None, places))}")


def write_file(folder: str, name: str, data: bytes, mode: int = 0o600) -> None:
    """Write a new file below a folder. Raises OSError, also where there is one."""
    path = os.path.join(folder, name)
    os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
        file.write(data)


def name_parent(place: str) -> str:
    """The user's private folder at a place."""
    return os.path.join(place, f"overspan-nodes-{os.getuid()}")


def _own(parent: str) -> bool:
    """Make sure of the user's folder; False when another user owns it, or it is open to others."""
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
    """Remove a folder with all that is in it; what cannot be removed stays."""
    for parent, folders, files in os.walk(path, topdown=False):
        for name in files:
            _try(os.unlink, os.path.join(parent, name))
        for name in folders:
            inner = os.path.join(parent, name)
            _try(os.unlink if os.path.islink(inner) else os.rmdir, inner)
    _try(os.rmdir, path)


def _try(remove: Callable[[str], None], path: str) -> None:
    try:
        remove(path)
    except OSError:
        pass
