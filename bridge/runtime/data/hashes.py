"""The etags that contents have where etags are hashes: MD5 of an object, or of the sums of its parts."""

from __future__ import annotations

import hashlib
import os
import re

from overspan.bridge.runtime.data.object_store import StoredObject

_BLOCK = 1 << 20
_WHOLE = re.compile("[0-9a-f]{32}")
_IN_PARTS = re.compile("[0-9a-f]{32}-[0-9]+")


def hash_file(fd: int, stored: StoredObject, part_size: int) -> str:
    """The etag of a file's content, in the form of the object's; empty where that cannot be made again."""
    if _WHOLE.fullmatch(stored.etag):
        return _hash_part(fd, 0, stored.size).hex()
    if not (_IN_PARTS.fullmatch(stored.etag) and part_size):
        return ""
    digests = [_hash_part(fd, offset, part_size) for offset in range(0, stored.size, part_size)]
    return f"{_sum(b''.join(digests)).hex()}-{len(digests)}"


def hash_path(path: str, stored: StoredObject, part_size: int) -> str:
    """The same of a file by its path. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return hash_file(fd, stored, part_size)
    finally:
        os.close(fd)


def _hash_part(fd: int, offset: int, size: int) -> bytes:
    digest, end = hashlib.md5(usedforsecurity=False), offset + size
    while offset < end:
        block = os.pread(fd, min(_BLOCK, end - offset), offset)
        if not block:
            break
        digest.update(block)
        offset += len(block)
    return digest.digest()


def _sum(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()
