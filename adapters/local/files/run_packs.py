"""Packs an ended job: one compressed file replaces the small files of its run directory.

    ROOT/runs/N/pack.zip    members have their paths in the run directory as names, and their modes

A run directory is either unpacked, as its supervisor left it, or packed. In between, a file may be in both places, and
the one in the directory counts. Only files with Overspan's own names are packed. The job's own files stay, as do large
files, links, and the list of steps, which every `sacct` reads.
"""

from __future__ import annotations

import errno
import io
import logging
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, NamedTuple

from overspan.bridge.runtime.core.node_records import list_records

_log = logging.getLogger(__name__)

PACK = "pack.zip"
DAMAGED = "pack.damaged.zip"
"""The name of a damaged pack, which is kept for diagnosis."""
LARGEST = 1 << 20
"""Bytes of the largest file that is packed, since reading the end of a packed file unpacks all of it."""

_FILES = re.compile(
    r"(?:plan|grant)\.\d+\.json|(?:queue|orders|journal)\.\d+\.jsonl|(?:streams|times)\.jsonl|ending", re.ASCII
)
_FOLDERS = re.compile(r"nodes|scripts|logs|steps|names\.\d+", re.ASCII)
_OTHERS = re.compile(r"steps/\d+\.jsonl|logs/(?!.+\.\d+\.\d+\.\d+\.(?:out|err|stepd)$).*", re.ASCII | re.DOTALL)
"""Files in these folders that are not packed: lists of steps, and logs with names that the user chose."""
_UNREADABLE = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, NotImplementedError, RuntimeError, KeyError)
"""Exceptions of `zipfile` for a damaged file."""


class _PackedFile(NamedTuple):
    """A file to pack, with its state before that."""

    name: str
    size: int
    changed_at: int
    mode: int


def name_pack(folder: str) -> str:
    """The path of a run directory's pack."""
    return f"{folder}/{PACK}"


def open_file(folder: str, name: str) -> IO[bytes]:
    """Open a file of a run directory, or its packed copy. Raises OSError: EBADMSG for a damaged pack."""
    path = f"{folder}/{name}"
    try:
        return open(path, "rb", buffering=0)
    except FileNotFoundError:
        pack = name_pack(folder)
        if not os.path.exists(pack):
            raise
    packed = read_member(folder, name)
    if packed is None:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    return io.BytesIO(packed)


def read_member(folder: str, name: str) -> bytes | None:
    """The packed copy of a file; None without a pack, or if the pack lacks it. Raises OSError as `open_file`."""
    pack = name_pack(folder)
    try:
        with zipfile.ZipFile(pack) as archive:
            return archive.read(name) if name in archive.NameToInfo else None
    except FileNotFoundError:
        return None
    except _UNREADABLE as error:
        raise _damage(pack, error) from error


def pack_run(folder: str) -> None:
    """Replace the small files of a run directory by a pack. Raises OSError; no file is lost then.

    The pack is written with fsync before files are removed. If a crash interrupts it, the next call starts again.
    """
    found = list(_find_files(folder))
    pack, part = name_pack(folder), f"{folder}/{PACK}.new"
    try:
        if found:
            _write(folder, part, found, _set_damaged_aside(folder))
            os.replace(part, pack)
    finally:
        _remove(part)
    for each in found:
        _remove_unchanged(folder, each)
    _remove_folders(folder)


def unpack_run(folder: str) -> None:
    """Unpack a run directory, for another launch of its job. Raises OSError; no file is lost then.

    A damaged pack is renamed, and the new launch does without its files.
    """
    pack = name_pack(folder)
    for info in _set_damaged_aside(folder):
        path = f"{folder}/{info.filename}"
        if os.path.lexists(path):
            continue
        data = read_member(folder, info.filename)
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        with open(os.open(f"{path}.new", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
            file.write(data or b"")
            os.fchmod(file.fileno(), (info.external_attr >> 16) & 0o777 or 0o600)
        os.replace(f"{path}.new", path)
    _remove(pack)


def _find_files(folder: str) -> Iterator[_PackedFile]:
    """The files that can be packed."""
    strays = _has_strays(folder)
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_file(follow_symlinks=False) and _FILES.fullmatch(entry.name):
                yield from _describe(folder, entry.name)
            elif entry.is_dir(follow_symlinks=False) and _FOLDERS.fullmatch(entry.name):
                if entry.name == "logs" and strays:
                    continue
                for path, _, names in os.walk(entry.path):
                    for name in names:
                        yield from _describe(folder, os.path.relpath(f"{path}/{name}", folder))


def _has_strays(folder: str) -> bool:
    """Whether processes may have outlived the job, and may still write to its logs."""
    return any(record.strays_left or not record.subreaper for record in list_records(f"{folder}/nodes").values())


def _describe(folder: str, name: str) -> Iterator[_PackedFile]:
    try:
        status = os.lstat(f"{folder}/{name}")
    except FileNotFoundError:
        return
    if not stat.S_ISREG(status.st_mode) or status.st_nlink > 1 or status.st_size > LARGEST or _OTHERS.fullmatch(name):
        return
    yield _PackedFile(name, status.st_size, status.st_mtime_ns, status.st_mode)


def _write(folder: str, part: str, found: list[_PackedFile], known: list[zipfile.ZipInfo]) -> None:
    """Write these files, and the other members of an earlier pack, with fsync."""
    names = {each.name for each in found}
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with open(fd, "w+b") as file:
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            for each in found:
                with open(f"{folder}/{each.name}", "rb") as source:
                    archive.writestr(_make_info(each.name, each.mode), source.read())
            for info in known:
                if info.filename not in names:
                    data = read_member(folder, info.filename)
                    archive.writestr(_make_info(info.filename, info.external_attr >> 16), data or b"")
        file.flush()
        os.fdatasync(fd)


def _make_info(name: str, mode: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = (mode & 0xFFFF) << 16
    return info


def _set_damaged_aside(folder: str) -> list[zipfile.ZipInfo]:
    """The members of an existing pack; none for a damaged one, which is renamed."""
    pack = name_pack(folder)
    try:
        with zipfile.ZipFile(pack) as archive:
            bad = archive.testzip()
            if bad is not None:
                raise zipfile.BadZipFile(f"{bad} is damaged")
            return archive.infolist()
    except FileNotFoundError:
        return []
    except _UNREADABLE as error:
        _log.warning("%s; it is kept as %s", _damage(pack, error).strerror, DAMAGED)
        os.replace(pack, f"{folder}/{DAMAGED}")
        return []


def _remove_unchanged(folder: str, packed: _PackedFile) -> None:
    """Remove a file that is in the pack, unless it was changed since then."""
    for now in _describe(folder, packed.name):
        if now == packed:
            _remove(f"{folder}/{packed.name}")


def _remove_folders(folder: str) -> None:
    with os.scandir(folder) as entries:
        ours = [
            entry.path for entry in entries if entry.is_dir(follow_symlinks=False) and _FOLDERS.fullmatch(entry.name)
        ]
    for top in ours:
        for path, _, _ in os.walk(top, topdown=False):
            try:
                os.rmdir(path)
            except OSError as error:
                if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.EBUSY):
                    raise


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass


def _damage(pack: str, error: BaseException) -> OSError:
    return OSError(errno.EBADMSG, f"the pack of an ended job is damaged: {pack} ({error})", pack)
