"""The folders of a worker for what ends with it: plans, journals and records of its launches, and its own program.

Nothing there has to survive the machine. What belongs to launches is in memory where it can be: a file there costs a
hundredth of one on a disk. A worker holds the locks of its folders while it lives; what a killed one has left is
removed by the next that starts on the node. Their names have the node's: the disk may be one of several nodes, which
do not see each other's locks. Where there are no locks, only its worker removes a folder.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import sys
import tempfile

MEMORY = "/dev/shm"
LEAST_BYTES = 256 << 20
"""Free bytes without which the file system in memory is left to the jobs."""
_PREFIX = "span-pool-"
_LOCK = "lock"


class PrivateFolder:
    """One folder in memory and one on the disk, each made when it is first used; removed by `remove`."""

    def __init__(self, memory: str = MEMORY) -> None:
        self._memory = memory
        self._folders: dict[str, tuple[str, int]] = {}

    def make(self, handle: str) -> str:
        """A new folder for a launch, in memory while there is room. Raises OSError."""
        folder = self._open(self._memory) if has_room(self._memory) else self.open_disk()
        path = os.path.join(folder, handle)
        shutil.rmtree(path, ignore_errors=True)
        os.mkdir(path, 0o700)
        return path

    def open_disk(self) -> str:
        """The folder on the disk. Raises OSError."""
        return self._open(tempfile.gettempdir())

    def keep_program(self) -> None:
        """Give this program a name, where it came as a file without one: others are started by it. Raises OSError."""
        if sys.argv[0].startswith("/proc/self/fd/"):
            path = os.path.join(self.open_disk(), "worker.pyz")
            shutil.copyfile(sys.argv[0], path)
            sys.argv[0] = path

    def remove(self) -> None:
        """Remove all."""
        for path, lock in self._folders.values():
            shutil.rmtree(path, ignore_errors=True)
            os.close(lock)
        self._folders.clear()

    def _open(self, root: str) -> str:
        if root not in self._folders:
            sweep(root)
            self._folders[root] = _create(root)
        return self._folders[root][0]


def has_room(folder: str) -> bool:
    """Whether a file system has room, and lets programs be started: scripts of jobs are there."""
    try:
        found = os.statvfs(folder)
    except OSError:
        return False
    usable = os.access(folder, os.W_OK) and not found.f_flag & (os.ST_NOEXEC | os.ST_RDONLY)
    return usable and found.f_bavail * found.f_frsize >= LEAST_BYTES and found.f_favail > 0


def sweep(root: str) -> None:
    """Remove the folders of workers that live no more. Never fails."""
    for name in _list(root):
        path = os.path.join(root, name)
        try:
            if os.lstat(path).st_uid != os.getuid():
                continue
            lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(path, ignore_errors=True)
        except OSError:
            # Its worker lives.
            pass
        finally:
            os.close(lock)


def _list(root: str) -> list[str]:
    try:
        # Whole names: another node's may begin with this one's, and mkdtemp adds no hyphen.
        return [name for name in os.listdir(root) if name.rpartition("-")[0] == _name_folders()]
    except OSError:
        return []


def _name_folders() -> str:
    """How the names of this node's folders begin."""
    return _PREFIX + re.sub("[^A-Za-z0-9.-]", "_", os.uname().nodename)


def _create(root: str) -> tuple[str, int]:
    """A folder that has its lock before others may find it by its name; without locks, they never do."""
    path = tempfile.mkdtemp(prefix=f".{_name_folders()}-", dir=root)
    lock = os.open(os.path.join(path, _LOCK), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
    except OSError:
        return path, lock
    shown = os.path.join(root, os.path.basename(path)[1:])
    os.rename(path, shown)
    return shown, lock
