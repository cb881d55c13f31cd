"""Room on the disk of the state folder: the reserve that a daemon starts from, and the error that says there is none.

A job that fills the disk may be ended with the daemon alone, so a daemon has to start on a full disk too. While there
is room it keeps a file there, and one that finds the disk full at its start removes that file first.

Used by the client and the daemon; standard library only.
"""

from __future__ import annotations

import errno
import os
import shlex

from overspan.bridge.model.errors import StoreFailed
from overspan.bridge.model.sizes import format_bytes

NEEDED = 256 << 10
"""Bytes that the first start in a folder writes; a later one writes less, but for a migration."""
RESERVE = 1 << 20
ROOM = 64 * RESERVE
"""Free bytes from which on the reserve is made: it is never the reason why a disk is full."""
_FULL = (errno.ENOSPC, errno.EDQUOT)


def is_full(error: BaseException) -> bool:
    """Whether an error says that there is no room, or that the user's quota is used up."""
    return isinstance(error, OSError) and error.errno in _FULL


def find_shortage(folder: str) -> StoreFailed | None:
    """The error about a disk that does not take what a start writes; None if it does, or fails in another way."""
    number = _try_room(folder)
    return word_shortage(folder, number) if number in _FULL else None


def word_shortage(folder: str, number: int) -> StoreFailed:
    """The error about the disk of a folder, for the errno of a write: ENOSPC or EDQUOT."""
    free, total, inodes = _read_space(folder)
    if number == errno.EDQUOT:
        what = f"the disk quota for the state folder {folder} is used up: the disk has {format_bytes(free)} free"
        look = "quota -s"
    elif inodes == 0:
        what, look = f"the disk of the state folder {folder} takes no more files: it has no free inode", "df -i"
    else:
        what = f"the disk of the state folder {folder} is full: {format_bytes(free)} of {format_bytes(total)} are free"
        look = "df -h"
    return StoreFailed(
        f"{what}; the daemon needs {format_bytes(NEEDED)} there to start, jobs go on",
        remedy=f"make room there ({look} {shlex.quote(folder)}); the next command starts the daemon",
    )


def keep_reserve(folder: str) -> bool:
    """Make the reserve unless it is there or room is short; whether it is there. Blocks on the disk."""
    path = _reserve(folder)
    if _read_size(path) >= RESERVE:
        return True
    # One that a kill has cut short is made anew.
    _remove(path)
    free, _, _ = _read_space(folder)
    if free < ROOM:
        return False
    number = _write(path, RESERVE)
    if number:
        _remove(path)
    return number == 0


def release_reserve(folder: str) -> bool:
    """Remove the reserve if the disk does not take what a start writes; whether it was removed."""
    path = _reserve(folder)
    if _read_size(path) < 0 or _try_room(folder) not in _FULL:
        return False
    try:
        os.unlink(path)
    except OSError:
        return False
    return True


def _reserve(folder: str) -> str:
    return os.path.join(folder, "daemon.reserve")


def _try_room(folder: str) -> int:
    """Write what a start writes to a file without a name: 0, or the errno of the failure."""
    return _write(os.path.join(folder, f"daemon.room.{os.getpid()}"), NEEDED, kept=False)


def _write(path: str, size: int, kept: bool = True) -> int:
    """Write a new file that takes its size of the disk: 0, or the errno of the failure."""
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            if not kept:
                os.unlink(path)
            # Random, since a file system may compress what it keeps.
            file.write(os.urandom(size))
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _read_size(path: str) -> int:
    try:
        return os.path.getsize(path)
    except OSError:
        return -1


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except OSError:
        pass


def _read_space(folder: str) -> tuple[int, int, int]:
    """Free bytes, all bytes and free inodes for this user; zeros and -1 where nobody can tell."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return 0, 0, -1
    # Some file systems have no inodes to count (f_files is 0).
    return found.f_bavail * found.f_frsize, found.f_blocks * found.f_frsize, found.f_favail if found.f_files else -1
