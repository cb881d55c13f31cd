"""inotify(7) by ctypes: wakes when something changes in a folder."""

from __future__ import annotations

import ctypes
import errno
import os

_MASK = 0x00000080 | 0x00000100 | 0x00000008 | 0x00000002 | 0x00000040 | 0x00000200 | 0x01000000
"""IN_MOVED_TO, IN_CREATE, IN_CLOSE_WRITE, IN_MODIFY, IN_MOVED_FROM, IN_DELETE; IN_ONLYDIR."""
_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
"""IN_NONBLOCK and IN_CLOEXEC have the values of these."""
MOST_FOLDERS = 2048
"""Folders that one instance watches; a user has 8192 by default (fs.inotify.max_user_watches)."""


class Inotify:
    """One inotify instance. `fd` is readable when something has changed; OSError where the kernel gives none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._folders: dict[str, int] = {}
        self.fd = self._libc.inotify_init1(_FLAGS)
        if self.fd < 0:
            raise OSError(ctypes.get_errno(), "inotify_init1")

    def watch(self, folders: set[str]) -> bool:
        """Watch these folders and no others; False where one of them cannot be watched, though it is there."""
        for folder in self._folders.keys() - folders:
            self._libc.inotify_rm_watch(self.fd, self._folders.pop(folder))
        complete = True
        for folder in sorted(folders):
            # Watched anew each time: one that was removed and made again is another folder of the same name.
            watch = self._libc.inotify_add_watch(self.fd, os.fsencode(folder), _MASK) if self._room(folder) else -1
            if watch >= 0:
                self._folders[folder] = watch
                continue
            self._folders.pop(folder, None)
            complete = complete and ctypes.get_errno() in (errno.ENOENT, errno.ENOTDIR)
        return complete

    def _room(self, folder: str) -> bool:
        if folder in self._folders or len(self._folders) < MOST_FOLDERS:
            return True
        ctypes.set_errno(errno.ENOSPC)
        return False

    def drain(self) -> None:
        """Forget what has changed so far."""
        try:
            while os.read(self.fd, 1 << 16):
                pass
        except BlockingIOError:
            pass

    def close(self) -> None:
        """Let the instance go."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1
