"""Contents of objects that are only read, kept once for all jobs that want the same.

CACHE/DIGEST         a content; files of jobs are links to it
CACHE/DIGEST.state   what it is, its size, last write and etag; the file's own time is that of the last use
CACHE/DIGEST.part    what has come of one that is being fetched
CACHE/DIGEST.lock    held by the process that fetches or removes it

ROOT/data/cache is the cache of a folder of jobs, unless ROOT/data/cache.json says {"path", "limit"}: another place, and
how many bytes it may have (None: a part of its disk).
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import Callable, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.sizes import format_bytes
from overspan.bridge.model.storage import WEB
from overspan.bridge.runtime.data.folder_state import FolderState, SyncedFile
from overspan.bridge.runtime.data.object_store import StoredObject

CACHE_PART = 0.2
"""The part of the disk that the contents may take where nothing else is said."""
_SPARE = 64 << 20
"""Bytes of a disk that are left free."""
_NO_LOCKS = frozenset({errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP})
_NO_LINKS = frozenset({errno.EXDEV, errno.EPERM, errno.EMLINK, errno.EOPNOTSUPP})
_LINKING_SECONDS = 3600.0
"""Without locks, a content is removed only this long after its last use: another process may be about to link it."""
_FOLDER, _CACHE, _SETTINGS = "data", "cache", "cache.json"


class LockState(Enum):
    """Whether a lock is held by us, by another process, or by none because the file system has no locks."""

    HELD = "held"
    BUSY = "busy"
    NONE = "none"


class CachedContent(NamedTuple):
    """A content: STORE/BUCKET/KEY, bytes, last use, how many files of jobs are links to it, and whether it is whole."""

    name: str
    size: int
    used_at: float
    links: int
    whole: bool = True


class CacheListing(NamedTuple):
    """What a cache has, and how many bytes that may be."""

    path: str
    limit: int
    contents: tuple[CachedContent, ...]


class CleanedCache(NamedTuple):
    """What was removed of a cache, and how many contents stay because jobs use them or they were used lately."""

    removed: int
    size: int
    kept: int


class ContentCache:
    """The cache in one folder. Several processes and machines may use it at once."""

    def __init__(self, path: str, limit: Optional[int] = None) -> None:
        self.path = path
        self._limit = limit

    def make(self) -> None:
        """Make the folder. Raises OSError."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)

    @property
    def limit(self) -> int:
        """How many bytes it may have. Raises OSError."""
        if self._limit is not None:
            return self._limit
        status = os.statvfs(self.path)
        return int(status.f_blocks * status.f_frsize * CACHE_PART)

    def has(self, stored: StoredObject, identity: str) -> bool:
        """Whether the content of an object is there as it was written; `identity` names the store and its bucket."""
        return self._is_intact(self._place(stored, identity), _name_content(stored, identity))

    def link(self, stored: StoredObject, identity: str, path: str, fetch: Callable[[str], None]) -> None:
        """Make `path` a link to the content of an object; `fetch` brings it into a file, where it is not there.

        Where a link cannot be, it is a copy. Raises OSError, and what `fetch` raises.
        """
        kept, name = self._place(stored, identity), _name_content(stored, identity)
        with _lock(f"{kept}.lock") as state:
            if not self._is_intact(kept, name):
                _remove(kept)
                _remove(f"{kept}.state")
                # Without locks another process may fetch the same.
                part = f"{kept}.part" if state is LockState.HELD else f"{kept}.{os.urandom(8).hex()}.part"
                fetch(part)
                os.chmod(part, 0o444)
                os.replace(part, kept)
                status = os.stat(kept)
                FolderState(f"{kept}.state").put(name, SyncedFile(status.st_size, status.st_mtime_ns, stored.etag))
            _touch(f"{kept}.state")
            _remove(path)
            _link_or_copy(kept, path)

    def make_room(self, size: int) -> None:
        """Remove contents that no job uses until so much fits on the disk. Raises OSError where it does not."""
        found: Optional[list[CachedContent]] = None
        while size > _measure_free(self.path):
            found = self._list_unused() if found is None else found
            if not found:
                check_room(self.path, size)
                return
            self._discard(found.pop(0).name)

    def trim(self) -> None:
        """Remove contents that no job uses, the longest unused first, down to the limit."""
        try:
            over = sum(content.size for content in self._scan().values()) - self.limit
            for content in self._list_unused() if over > 0 else ():
                if over <= 0:
                    return
                over -= content.size if self._discard(content.name) else 0
        except OSError:
            # It is not there, or not ours to read: then there is nothing to be removed.
            return

    def describe(self) -> CacheListing:
        """What it has, in the order of names. Raises OSError where that cannot be told."""
        if not os.path.isdir(self.path):
            return CacheListing(self.path, self._limit or 0, ())
        contents = [content._replace(name=self._read_name(digest)) for digest, content in self._scan().items()]
        return CacheListing(self.path, self.limit, tuple(sorted(contents)))

    def clean(self, seconds: float) -> CleanedCache:
        """Remove contents that no job uses or has used for so many seconds. Raises OSError."""
        if not os.path.isdir(self.path):
            return CleanedCache(0, 0, 0)
        until, removed, size = time.time() - seconds, 0, 0
        found = self._scan()
        for digest, content in found.items():
            if not content.links and content.used_at <= until and self._discard(digest):
                removed, size = removed + 1, size + content.size
        return CleanedCache(removed, size, len(found) - removed)

    # --- contents ----------------------------------------------------------------------------------------------------

    def _place(self, stored: StoredObject, identity: str) -> str:
        text = "\0".join((identity, stored.key, stored.etag, str(stored.size)))
        return os.path.join(self.path, hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest())

    def _is_intact(self, kept: str, name: str) -> bool:
        try:
            status = os.stat(kept)
        except OSError:
            return False
        return FolderState(f"{kept}.state").is_synced(name, status.st_size, status.st_mtime_ns)

    def _scan(self) -> dict[str, CachedContent]:
        """What is there, by its digest, which is also its name here. Raises OSError."""
        found: dict[str, CachedContent] = {}
        for entry in sorted(os.listdir(self.path)):
            digest, _, ending = entry.partition(".")
            try:
                status = os.stat(os.path.join(self.path, entry))
                if not ending:
                    used = _read_time(os.path.join(self.path, f"{entry}.state"), status.st_mtime)
                    found[digest] = CachedContent(digest, status.st_size, used, status.st_nlink - 1)
                elif ending.endswith("part") and digest not in found:
                    found[digest] = CachedContent(digest, status.st_size, status.st_mtime, 0, whole=False)
            except OSError:
                # Another process removes it meanwhile.
                continue
        return found

    def _list_unused(self) -> list[CachedContent]:
        """What no job has links to, in the order of its last use: to remove the rest would free nothing."""
        return sorted((each for each in self._scan().values() if not each.links), key=lambda each: each.used_at)

    def _discard(self, digest: str) -> bool:
        """Remove a content, unless a process fetches it or has just linked it; whether it is gone."""
        kept = os.path.join(self.path, digest)
        with _lock(f"{kept}.lock", wait=False) as state:
            if state is LockState.BUSY or _count_links(kept) > 1:
                return False
            if state is LockState.NONE and time.time() - _read_time(f"{kept}.state", time.time()) < _LINKING_SECONDS:
                return False
            for name in os.listdir(self.path):
                if name.partition(".")[0] == digest:
                    _remove(os.path.join(self.path, name))
            return True

    def _read_name(self, digest: str) -> str:
        names = list(FolderState(os.path.join(self.path, f"{digest}.state")).files)
        return names[-1] if names and names[-1] else digest


def _name_content(stored: StoredObject, identity: str) -> str:
    """STORE/BUCKET/KEY; of a URL without what may say who may read it."""
    return f"{identity}/{stored.key.partition('?')[0] if identity.startswith(f'{WEB}/') else stored.key}"


def check_room(path: str, size: int) -> None:
    """Raise OSError with both figures where so much does not fit on the disk of a folder."""
    free = _measure_free(path)
    if size > free:
        text = f"{format_bytes(size)} do not fit, {format_bytes(max(0, free))} are free"
        raise OSError(errno.ENOSPC, text, path)


def measure_disk(path: str) -> int:
    """The most bytes that the disk of a folder could ever have for data. Raises OSError."""
    status = os.statvfs(path)
    return max(0, status.f_blocks * status.f_frsize - _SPARE)


def _measure_free(path: str) -> int:
    status = os.statvfs(path)
    return status.f_bavail * status.f_frsize - _SPARE


def name_cache_settings(root: str) -> str:
    """The file that says where the cache of a folder of jobs is."""
    return os.path.join(root, _FOLDER, _SETTINGS)


def render_cache_settings(path: str, limit: Optional[int]) -> bytes:
    """Its content; an empty path is the usual place."""
    return json.dumps({"path": path, "limit": limit}).encode()


def write_cache_settings(root: str, path: str, limit: Optional[int]) -> None:
    """Write the file in one step. Raises OSError."""
    place = name_cache_settings(root)
    os.makedirs(os.path.dirname(place), mode=0o700, exist_ok=True)
    fresh = f"{place}.{os.urandom(8).hex()}"
    with open(fresh, "wb") as file:
        file.write(render_cache_settings(path, limit))
    os.replace(fresh, place)


def open_usual_cache(root: str) -> ContentCache:
    """The cache below a folder of jobs, where it is without settings."""
    return ContentCache(os.path.join(root, _FOLDER, _CACHE))


def open_cache(root: str) -> ContentCache:
    """The cache of a folder of jobs; the usual one where its settings cannot be read."""
    usual = open_usual_cache(root).path
    try:
        with open(name_cache_settings(root), encoding="utf-8") as file:
            settings = json.load(file)
        path, limit = str(settings["path"]), settings["limit"]
        return ContentCache(os.path.expanduser(path) or usual, None if limit is None else int(limit))
    except (OSError, ValueError, LookupError, TypeError):
        return ContentCache(usual)


@contextmanager
def _lock(path: str, *, wait: bool = True) -> Iterator[LockState]:
    """Hold a lock file, where it can be held."""
    while True:
        with open(path, "a") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in _NO_LOCKS and (wait or error.errno != errno.EWOULDBLOCK):
                    raise
                yield LockState.NONE if error.errno in _NO_LOCKS else LockState.BUSY
                return
            # The process that held it before may have removed the file.
            if _is_same(lock.fileno(), path):
                yield LockState.HELD
                return


def _is_same(fd: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(fd), os.stat(path))
    except FileNotFoundError:
        return False


def _link_or_copy(source: str, target: str) -> None:
    try:
        os.link(source, target)
        return
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
    # Not at the top: supervisors that move no data import modules of this package too.
    import shutil

    # The ending of files that are being fetched, which no folder shows.
    part = f"{target}.overspan-part"
    shutil.copyfile(source, part)
    os.chmod(part, 0o444)
    os.replace(part, target)


def _count_links(path: str) -> int:
    try:
        return os.stat(path).st_nlink
    except FileNotFoundError:
        return 0


def _read_time(path: str, otherwise: float) -> float:
    try:
        return os.stat(path).st_mtime
    except OSError:
        return otherwise


def _touch(path: str) -> None:
    try:
        os.utime(path)
    except OSError:
        # A full disk kept it away: the content is fetched again then.
        pass


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
