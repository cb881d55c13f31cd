"""inotify(7) by ctypes: wakes when something changes in a folder."""

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterator
from typing import NamedTuple

_MASK = 0x00000080 | 0x00000100 | 0x00000008 | 0x00000002 | 0x00000040 | 0x00000200 | 0x01000000
"""IN_MOVED_TO, IN_CREATE, IN_CLOSE_WRITE, IN_MODIFY, IN_MOVED_FROM, IN_DELETE; IN_ONLYDIR."""
_IGNORED = 0x00008000
"""IN_IGNORED: a watch has ended."""
_HEAD = struct.Struct("iIII")
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
"""IN_NONBLOCK and IN_CLOEXEC have the values of these."""
MOST_FOLDERS = 2048
"""Folders that one instance watches; a user has 8192 by default (fs.inotify.max_user_watches)."""


class WatchOutcome(NamedTuple):
    """Whether all folders that are there are watched, and whether one was not before: it may have changed until now."""

    complete: bool
    fresh: bool


class Inotify:
    """One inotify instance. `fd` is readable when something has changed; OSError where the kernel gives none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._folders: dict[str, int] = {}
        self.fd = self._libc.inotify_init1(_FLAGS)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def watch(self, folders: set[str]) -> WatchOutcome:
        """Watch these folders and no others."""
        for folder in self._folders.keys() - folders:
            self._libc.inotify_rm_watch(self.fd, self._folders.pop(folder))
        complete, fresh = True, False
        for folder in sorted(folders):
            # Watched anew each time: one that was removed and made again is another folder of the same name.
            watch = self._libc.inotify_add_watch(self.fd, os.fsencode(folder), _MASK) if self._room(folder) else -1
            if watch >= 0:
                fresh = fresh or self._folders.get(folder) != watch
                self._folders[folder] = watch
                continue
            self._folders.pop(folder, None)
            complete = complete and ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR)
        return WatchOutcome(complete, fresh)

    def _room(self, folder: str) -> bool:
        if folder in self._folders or len(self._folders) < MOST_FOLDERS:
            return True
        ctypes.set_errno(errno.ENOSPC)
        return False

    def take(self) -> bool:
        """Take what has changed so far; whether that is anything besides the end of a watch."""
        changed = False
        try:
            while data := os.read(self.fd, 1 << 16):
                changed = changed or any(not mask & _IGNORED for mask in _list_masks(data))
        except BlockingIOError:
            pass
        return changed

    def close(self) -> None:
        """Let the instance go."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


def _list_masks(data: bytes) -> Iterator[int]:
    """The masks of the events that were read: each is a head, and a name of the length that it tells."""
    at = 0
    while at + _HEAD.size <= len(data):
        _, mask, _, length = _HEAD.unpack_from(data, at)
        yield mask
        at += _HEAD.size + length
