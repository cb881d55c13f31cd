"""Reproducible archives of the submitter's files: the bytes depend on names and contents alone.

What a `.skyignore` at the top names stays behind, else what the `.gitignore` files and git's own list of exclusions
name, and `.git` itself (as SkyPilot's storage uploads do). Links are kept as links and never followed.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator, Sequence
from typing import BinaryIO, NamedTuple, cast

from overspan.adapters.ignore_patterns import Rule, is_ignored, read_rules
from overspan.bridge.model.errors import InvalidRequest, OverspanError

SKYIGNORE, GITIGNORE = ".skyignore", ".gitignore"
_GIT = ".git"
_MAX_RULES = 1 << 20
_LEVEL = 6
_DATE = 315532800
"""1980-01-01: GNU tar complains of 1970."""


class ArchiveItem(NamedTuple):
    """One entry of an archive: its name in there, where it is, and what shows that it is still the same.

    `kind` is one of tarfile's types. Sizes are bytes, `changed` is nanoseconds since the epoch.
    """

    name: str
    path: str
    kind: bytes
    mode: int
    size: int = 0
    changed: int = 0
    target: str = ""


REMEDY = (
    "leave out what the job does not need by a .skyignore file, put large data on the cluster and name it by its path "
    "there in `run`, or raise `max_staged` of the cluster"
)


def list_items(source: str, limit: int, remedy: str = REMEDY) -> tuple[ArchiveItem, ...]:
    """What an archive of a file or folder has in it, by name; all names begin with the source's own.

    Raises InvalidRequest for what cannot travel: more than `limit` bytes (with that remedy), what may not be read, what
    is no file.
    """
    top = os.path.basename(os.path.normpath(source))
    if not top:
        raise InvalidRequest("the whole file system cannot be sent to a cluster", remedy="name a folder in it")
    try:
        first = _make_item(top, source, os.stat(source))
        found = [first] if first is not None else []
        if first is not None and first.kind == tarfile.DIRTYPE:
            found += _walk(source, top, _read_top_rules(source))
    except OSError as error:
        raise InvalidRequest(
            f"{error.filename or source} cannot be sent to the cluster: {error.strerror}",
            remedy="mend it, or name it in a .skyignore file",
        ) from None
    if not found:
        raise InvalidRequest(f"{source} is neither a file nor a folder", remedy="only those travel to a cluster")
    size = sum(item.size for item in found)
    if size > limit:
        raise InvalidRequest(_describe_excess(source, found, size, limit), remedy=remedy)
    return tuple(found)


def _describe_excess(source: str, items: Sequence[ArchiveItem], size: int, limit: int) -> str:
    largest = max(items, key=lambda item: item.size)
    return (
        f"{source} has {_show(size)} to send to the cluster, and {_show(limit)} are allowed;"
        f" the largest file is {largest.path} with {_show(largest.size)}"
    )


def _show(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def _read_top_rules(folder: str) -> tuple[Rule, ...] | None:
    """The rules of `.skyignore`; None where there is none, so that those of git count."""
    return read_rules(text) if (text := _read_text(os.path.join(folder, SKYIGNORE))) is not None else None


def _read_text(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="surrogateescape") as file:
            return file.read(_MAX_RULES)
    except OSError:
        return None


def _walk(top: str, name: str, sky: tuple[Rule, ...] | None) -> Iterator[ArchiveItem]:
    """Everything below a folder that travels, by name."""
    exclude = _read_text(os.path.join(top, _GIT, "info", "exclude")) if sky is None else None
    waiting = [("", sky or read_rules(exclude or ""))]
    found: list[ArchiveItem] = []
    while waiting:
        base, rules = waiting.pop()
        folder = os.path.join(top, base)
        if sky is None:
            rules += read_rules(_read_text(os.path.join(folder, GITIGNORE)) or "", base)
        with os.scandir(folder) as entries:
            for entry in entries:
                path = base + entry.name
                inside = entry.is_dir(follow_symlinks=False)
                if path == _GIT or is_ignored(rules, path, inside):
                    continue
                item = _make_item(f"{name}/{path}", entry.path, entry.stat(follow_symlinks=False))
                if item is not None:
                    found.append(item)
                if inside:
                    waiting.append((f"{path}/", rules))
    yield from sorted(found)


def _make_item(name: str, path: str, status: os.stat_result) -> ArchiveItem | None:
    """None for sockets, pipes and devices, which cannot travel."""
    executable = 0o755 if status.st_mode & stat.S_IXUSR else 0o644
    if stat.S_ISREG(status.st_mode):
        return ArchiveItem(name, path, tarfile.REGTYPE, executable, status.st_size, status.st_mtime_ns)
    if stat.S_ISDIR(status.st_mode):
        return ArchiveItem(name, path, tarfile.DIRTYPE, 0o755)
    if stat.S_ISLNK(status.st_mode):
        return ArchiveItem(name, path, tarfile.SYMTYPE, 0o777, target=os.readlink(path))
    return None


def describe_items(items: Sequence[ArchiveItem]) -> str:
    """A hash of the list: while it is the same, so is the archive."""
    digest = hashlib.sha256()
    for item in items:
        digest.update(repr(tuple(item)).encode())
    return digest.hexdigest()


def write_archive(items: Sequence[ArchiveItem], file: BinaryIO) -> str:
    """Write a packed tar file and give the hash of what is in it.

    Raises OverspanError, to be tried again, when a file changes while it is read.
    """
    with gzip.GzipFile("", "wb", _LEVEL, file, mtime=0) as packed:
        stream = _Hashed(packed)
        with tarfile.open(fileobj=cast("BinaryIO", stream), mode="w", format=tarfile.GNU_FORMAT) as archive:
            for item in items:
                _add(archive, item)
    return stream.digest.hexdigest()[:32]


class _Hashed:
    """Passes bytes on and hashes them."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self.digest = hashlib.sha256()
        self._file = file
        self._count = 0

    def write(self, data: bytes) -> int:
        self.digest.update(data)
        self._count += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._count


def _add(archive: tarfile.TarFile, item: ArchiveItem) -> None:
    # Neither owner nor time is part of the content.
    entry = tarfile.TarInfo(item.name)
    entry.type, entry.mode, entry.linkname, entry.mtime = item.kind, item.mode, item.target, _DATE
    if item.kind != tarfile.REGTYPE:
        archive.addfile(entry)
        return
    entry.size = item.size
    try:
        with open(item.path, "rb") as file:
            archive.addfile(entry, file)
            status = os.fstat(file.fileno())
    except OSError as error:
        raise _changed(item.path, error.strerror or "it cannot be read") from error
    if (status.st_size, status.st_mtime_ns) != (item.size, item.changed):
        raise _changed(item.path, "it has changed")


def _changed(path: str, why: str) -> OverspanError:
    return OverspanError(f"{path}: {why} while it was packed for the cluster", remedy="it is tried again")
