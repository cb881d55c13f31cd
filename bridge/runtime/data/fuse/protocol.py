"""The wire format between the kernel and a FUSE server (linux/fuse.h, version 7.31). Pure."""

from __future__ import annotations

import os
import stat
import struct
from typing import Union

from overspan.bridge.model.records import NamedTuple

Buffer = Union[bytes, memoryview]

LOOKUP, FORGET, GETATTR, SETATTR, READLINK, SYMLINK = 1, 2, 3, 4, 5, 6
MKNOD, MKDIR, UNLINK, RMDIR, RENAME, LINK, OPEN, READ, WRITE, STATFS, RELEASE = 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18
FSYNC, FLUSH, INIT, OPENDIR, READDIR, RELEASEDIR, FSYNCDIR = 20, 25, 26, 27, 28, 29, 30
CREATE, INTERRUPT, DESTROY, BATCH_FORGET, FALLOCATE, READDIRPLUS, RENAME2 = 35, 36, 38, 42, 43, 44, 45

ROOT = 1
"""The node of the folder itself."""
MAX_WRITE = 1 << 20
"""The most bytes of one request to write."""
REQUEST_SIZE = MAX_WRITE + 4096
"""Of the buffer that takes one request."""

SET_MODE, SET_UID, SET_GID, SET_SIZE, SET_ATIME, SET_MTIME, SET_HANDLE = 1, 2, 4, 8, 16, 32, 64
SET_ATIME_NOW, SET_MTIME_NOW = 128, 256
KEEP_CACHE = 2
"""The file is as it was when it was opened last: what the kernel remembers of it counts."""

_MAJOR, _MINOR = 7, 31
_ASYNC_READ, _ATOMIC_TRUNCATE, _BIG_WRITES, _INVALIDATE = 1 << 0, 1 << 3, 1 << 5, 1 << 12
_READDIRPLUS, _READDIRPLUS_AUTO, _PARALLEL, _MAX_PAGES = 1 << 13, 1 << 14, 1 << 18, 1 << 22
_WANTED = (
    _ASYNC_READ | _ATOMIC_TRUNCATE | _BIG_WRITES | _INVALIDATE | _READDIRPLUS | _READDIRPLUS_AUTO | _PARALLEL
) | _MAX_PAGES
_BACKGROUND, _CONGESTED = 64, 48
_ATTRIBUTE_SECONDS = 1
"""For how long the kernel answers from what it was told; programs on other machines may write the folder, too."""

_HEADER = struct.Struct("<IIQQIIII")
_REPLY = struct.Struct("<IiQ")
_INIT_OUT = struct.Struct("<IIIIHHIIHH32x")
_ATTRIBUTES = struct.Struct("<QQQQQQIIIIIIIIII")
_ENTRY = struct.Struct("<QQQQII")
_DIRENT = struct.Struct("<QQII")
_STATFS = struct.Struct("<QQQQQIIII24x")


class Request(NamedTuple):
    """A request of the kernel's: its number, the node and the process that it is for, and what is behind the header."""

    opcode: int
    unique: int
    node: int
    pid: int
    body: Buffer

    def unpack(self, form: str) -> tuple[int, ...]:
        """The numbers at the beginning of the body."""
        return struct.unpack_from("<" + form, self.body)

    def names(self, skip: int = 0) -> list[str]:
        """The names behind so many bytes."""
        return [os.fsdecode(name) for name in bytes(self.body[skip:]).split(b"\0")[:-1]]


class SetAttributes(NamedTuple):
    """What is to be changed of a file; `valid` has the flags of those that count. Times are nanoseconds."""

    valid: int
    handle: int
    size: int
    atime: int
    mtime: int
    mode: int
    uid: int
    gid: int


class Attributes(NamedTuple):
    """A file's attributes, as stat(2) has them; times are nanoseconds."""

    size: int
    mode: int
    uid: int
    gid: int
    mtime: int
    atime: int = 0
    ctime: int = 0
    nlink: int = 1

    @classmethod
    def of(cls, status: os.stat_result) -> Attributes:
        """Those of a file on a disk."""
        return cls(
            status.st_size,
            status.st_mode,
            status.st_uid,
            status.st_gid,
            status.st_mtime_ns,
            status.st_atime_ns,
            status.st_ctime_ns,
            status.st_nlink,
        )


class DirectoryEntry(NamedTuple):
    """A row of a folder's listing; `node` is 0 where the kernel is not to remember it."""

    name: str
    node: int
    attributes: Attributes


def parse_request(data: memoryview) -> Request:
    """Read a request; its body is a copy, since the buffer takes the next one. struct.error for another text."""
    length, opcode, unique, node, _, _, pid, _ = _HEADER.unpack_from(data)
    return Request(opcode, unique, node, pid, bytes(data[_HEADER.size : length]))


def encode_reply(unique: int, parts: tuple[Buffer, ...] = (), error: int = 0) -> list[Buffer]:
    """A reply, to be written in one call; `error` is an errno."""
    return [_REPLY.pack(_REPLY.size + sum(map(len, parts)), -error, unique), *parts]


def encode_init(request: Request) -> bytes:
    """The answer to the kernel's first request."""
    _, minor, readahead, flags = request.unpack("IIII")
    pages = MAX_WRITE // 4096
    return _INIT_OUT.pack(
        _MAJOR, min(minor, _MINOR), readahead, flags & _WANTED, _BACKGROUND, _CONGESTED, MAX_WRITE, 1, pages, 0
    )


def encode_attributes(node: int, attributes: Attributes) -> bytes:
    """The answer to GETATTR and SETATTR."""
    return struct.pack("<QII", _ATTRIBUTE_SECONDS, 0, 0) + _pack_attributes(node, attributes)


def encode_entry(node: int, attributes: Attributes) -> bytes:
    """A node that was looked up or made."""
    seconds = _ATTRIBUTE_SECONDS if node else 0
    return _ENTRY.pack(node, 0, seconds, seconds, 0, 0) + _pack_attributes(node, attributes)


def encode_open(handle: int, flags: int = 0) -> bytes:
    """What was opened."""
    return struct.pack("<QII", handle, flags, 0)


def encode_written(size: int) -> bytes:
    """So many bytes were written."""
    return struct.pack("<II", size, 0)


def encode_space(space: os.statvfs_result) -> bytes:
    """The answer to STATFS."""
    return _STATFS.pack(
        space.f_blocks,
        space.f_bfree,
        space.f_bavail,
        space.f_files,
        space.f_ffree,
        space.f_bsize,
        255,
        space.f_frsize,
        0,
    )


def encode_row(row: DirectoryEntry, offset: int, *, plus: bool) -> bytes:
    """A row of a listing; the next one begins at `offset`. `plus`: with its attributes."""
    name = os.fsencode(row.name)
    kind = stat.S_IFMT(row.attributes.mode) >> 12
    # A node that is not known yet has the number of none (FUSE_UNKNOWN_INO).
    text = _DIRENT.pack(row.node or 0xFFFFFFFF, offset, len(name), kind) + name
    text += b"\0" * (-len(text) % 8)
    return encode_entry(row.node, row.attributes) + text if plus else text


def parse_changes(request: Request) -> SetAttributes:
    """What SETATTR asks for."""
    numbers = request.unpack("IIQQQQQQIIIIIII")
    valid, _, handle, size, _, atime, mtime, _, atime_rest, mtime_rest, _, mode, _, uid, gid = numbers
    billion = 1_000_000_000
    return SetAttributes(
        valid, handle, size, atime * billion + atime_rest, mtime * billion + mtime_rest, mode, uid, gid
    )


def _pack_attributes(node: int, each: Attributes) -> bytes:
    billion = 1_000_000_000
    times = (each.atime, each.mtime, each.ctime)
    return _ATTRIBUTES.pack(
        node or 0xFFFFFFFF,
        each.size,
        (each.size + 511) // 512,
        *(max(time, 0) // billion for time in times),
        *(max(time, 0) % billion for time in times),
        each.mode,
        each.nlink,
        each.uid,
        each.gid,
        0,
        4096,
        0,
    )
