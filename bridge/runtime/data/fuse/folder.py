"""The files of a mounted folder: what work has written, on the node's disk, before what the store has.

    written    the folder that the uploader sends from; a file in it hides the object of its name
    store      the objects below the prefix, as they are now
    removed    names that work has removed here: objects of these are not shown, and the uploader removes them

A file of the store that is opened for writing is copied to the written folder first.
"""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from typing import Optional

from overspan.bridge.runtime.data.cached_folder import PART_ENDING
from overspan.bridge.runtime.data.fetching import download
from overspan.bridge.runtime.data.fuse.facts import RangeStore, StoreEntry, StoreFacts, StoreWaits
from overspan.bridge.runtime.data.fuse.protocol import Attributes
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject
from overspan.bridge.runtime.data.removals import RemovalNotes

_KEPT = os.O_TRUNC | os.O_APPEND
"""Of a file that is appended to by several programs the kernel does not know the end: writes go there by themselves."""
_NO_REPLACE = 1
"""Flag of renameat2(2)."""


class MountedFolder:
    """The folder's files by their names below it; called by several threads. All methods raise OSError."""

    def __init__(self, files: str, store: RangeStore, facts: StoreFacts, waits: StoreWaits) -> None:
        self.files = files
        self.facts = facts
        self._store = store
        self._waits = waits
        self._notes = RemovalNotes(files)
        self._removed = self._notes.list_names()
        self._lock = threading.Lock()
        self._copies: dict[str, threading.Lock] = {}

    # --- looking -----------------------------------------------------------------------------------------------------

    def path_of(self, name: str) -> str:
        """Where a file lies that was written."""
        return os.path.join(self.files, name) if name else self.files

    def look(self, name: str) -> Attributes:
        """A file's attributes."""
        written = self.look_written(name)
        return written or self.describe(self.find_stored(name))

    def look_written(self, name: str) -> Optional[Attributes]:
        """Those of a file or folder that was written; None where the store alone may have it."""
        if name.endswith(PART_ENDING):
            raise _fail(errno.ENOENT)
        try:
            return Attributes.of(os.lstat(self.path_of(name)))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def find_stored(self, name: str) -> StoreEntry:
        """What the store has of a name that was not removed."""
        entry = None if name in self._removed else self.facts.find(name)
        if entry is None:
            raise _fail(errno.ENOENT)
        return entry

    def describe(self, entry: StoreEntry) -> Attributes:
        """The attributes of what the store has."""
        mode = stat.S_IFDIR | 0o755 if entry.is_folder else stat.S_IFREG | 0o644
        modified = int(entry.stored.modified * 1e9)
        return Attributes(entry.stored.size, mode, os.getuid(), os.getgid(), modified, modified, modified)

    def list_folder(self, name: str) -> dict[str, Attributes]:
        """The names in a folder."""
        found = {}
        head = f"{name}/" if name else ""
        if not head or head not in self._removed:
            for last, entry in self.facts.list_folder(name).entries.items():
                if head + last not in self._removed:
                    found[last] = self.describe(entry)
        try:
            entries = list(os.scandir(self.path_of(name)))
        except (FileNotFoundError, NotADirectoryError):
            return found
        for each in entries:
            if not each.name.endswith(PART_ENDING):
                try:
                    found[each.name] = Attributes.of(each.stat(follow_symlinks=False))
                except FileNotFoundError:
                    continue
        return found

    # --- writing -----------------------------------------------------------------------------------------------------

    def open_written(self, name: str, flags: int) -> Optional[int]:
        """A descriptor of a file on the disk; None for one of the store that is opened for reading."""
        kind = flags & os.O_ACCMODE
        if kind != os.O_RDONLY or flags & os.O_TRUNC:
            self.bring(name, whole=not flags & os.O_TRUNC)
        try:
            return os.open(self.path_of(name), kind | (flags & _KEPT) | os.O_CLOEXEC | os.O_NOFOLLOW)
        except (FileNotFoundError, NotADirectoryError):
            if kind != os.O_RDONLY:
                raise
            return None

    def create(self, name: str, flags: int, mode: int) -> int:
        """Make a file, and give its descriptor."""
        self._make_parents(name)
        kept = flags & (os.O_ACCMODE | os.O_EXCL | os.O_APPEND)
        return os.open(self.path_of(name), kept | os.O_CREAT | os.O_CLOEXEC, mode & 0o7777)

    def make_folder(self, name: str, mode: int) -> None:
        """Make a folder."""
        self._make_parents(name)
        os.mkdir(self.path_of(name), mode & 0o7777)

    def make_link(self, name: str, target: str) -> None:
        """Make a symbolic link."""
        self._make_parents(name)
        os.symlink(target, self.path_of(name))

    def join_file(self, name: str, new: str) -> None:
        """Give a file another name (link(2))."""
        self.bring(name)
        self._make_parents(new)
        os.link(self.path_of(name), self.path_of(new))

    def bring(self, name: str, *, whole: bool = True) -> None:
        """Have a file be on the disk; not `whole`: an empty one in place of the store's."""
        if self.look_written(name) is not None:
            return
        with self._lock_copy(name):
            if self.look_written(name) is not None:
                return
            entry = self.find_stored(name)
            if entry.is_folder:
                raise _fail(errno.EISDIR)
            self._make_parents(name)
            path = self.path_of(name)
            if not whole:
                os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
                return
            part = os.path.join(os.path.dirname(path), f".{os.urandom(8).hex()}{PART_ENDING}")
            try:
                self._download(entry.stored, part)
                _publish(part, path)
            finally:
                if os.path.lexists(part):
                    os.unlink(part)

    def remove_file(self, name: str) -> None:
        """Remove a file, from the store too."""
        written = self.look_written(name)
        stored = self._find_hidden(name)
        if written is None and stored is None:
            raise _fail(errno.ENOENT)
        self._forget(name, stored)
        if written is not None:
            os.unlink(self.path_of(name))

    def remove_folder(self, name: str) -> None:
        """Remove an empty folder."""
        if self.list_folder(name):
            raise _fail(errno.ENOTEMPTY)
        marker = self.facts.list_folder(name).marker
        if marker is not None:
            self._notes.add(f"{name}/", marker)
        if self.look_written(name) is not None:
            os.rmdir(self.path_of(name))
        self._forget(name, None)
        with self._lock:
            self._removed.add(f"{name}/")

    def rename(self, old: str, new: str, flags: int) -> None:
        """Give a file or folder another name. EXDEV for a folder with files that the store alone has."""
        if flags & ~_NO_REPLACE:
            raise _fail(errno.EINVAL)
        moved, target = self.look(old), self._look_or_none(new)
        if target is not None and flags & _NO_REPLACE:
            raise _fail(errno.EEXIST)
        if stat.S_ISDIR(moved.mode):
            self._rename_folder(old, new, target)
            return
        if target is not None and stat.S_ISDIR(target.mode):
            raise _fail(errno.EISDIR)
        self.bring(old)
        self._make_parents(new)
        stored = self._find_hidden(old)
        os.rename(self.path_of(old), self.path_of(new))
        self._forget(old, stored)

    def _rename_folder(self, old: str, new: str, target: Optional[Attributes]) -> None:
        if target is not None and not stat.S_ISDIR(target.mode):
            raise _fail(errno.ENOTDIR)
        if target is not None and self.list_folder(new):
            raise _fail(errno.ENOTEMPTY)
        below = [(name, stored) for name, stored in self.facts.list_below(old) if name not in self._removed]
        if not all(name.endswith("/") or os.path.lexists(self.path_of(name)) for name, _ in below):
            # As of a folder on another file system: mv copies it then.
            raise _fail(errno.EXDEV)
        if self.look_written(old) is None:
            raise _fail(errno.EXDEV)
        self._make_parents(new)
        os.rename(self.path_of(old), self.path_of(new))
        for name, stored in below:
            self._forget(name, StoreEntry(stored))
        self._forget(old, None)

    def truncate(self, name: str, size: int) -> None:
        """Change a file's size."""
        self.bring(name, whole=size > 0)
        os.truncate(self.path_of(name), size)

    # --- parts -------------------------------------------------------------------------------------------------------

    def _look_or_none(self, name: str) -> Optional[Attributes]:
        try:
            return self.look(name)
        except FileNotFoundError:
            return None

    def _find_hidden(self, name: str) -> Optional[StoreEntry]:
        """What the store has of a name, whether a written file hides it or not; None for what was removed."""
        return None if name in self._removed else self.facts.find(name)

    def _forget(self, name: str, entry: Optional[StoreEntry]) -> None:
        """A name was removed: what the store has of it is not shown, and has to go."""
        if entry is not None and not entry.is_folder:
            self._notes.add(name, entry.stored)
        with self._lock:
            self._removed.add(name)

    def _make_parents(self, name: str) -> None:
        """Make the folders of a new file, where the store alone has them."""
        folder = os.path.dirname(self.path_of(name))
        if not os.path.isdir(folder):
            os.makedirs(folder, 0o755, exist_ok=True)

    def _lock_copy(self, name: str) -> threading.Lock:
        with self._lock:
            return self._copies.setdefault(name, threading.Lock())

    def _download(self, stored: StoredObject, part: str) -> None:
        free = shutil.disk_usage(os.path.dirname(part)).free
        if stored.size > free:
            raise _fail(errno.ENOSPC)
        try:
            self._waits.insist(lambda: download(self._store, stored, part))
        except ObjectStoreError as error:
            raise OSError(errno.ESTALE, str(error)) from None


def _publish(part: str, path: str) -> None:
    """Give a file its name, unless the server of another node has made one meanwhile, which may be written to."""
    try:
        os.link(part, path)
    except FileExistsError:
        pass
    except OSError:
        # The file system has no links.
        os.rename(part, path)


def _fail(number: int) -> OSError:
    return OSError(number, os.strerror(number))
