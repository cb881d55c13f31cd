"""Sends one file to a store: whole in one request, or in parts that become an object at the end.

A file that changes on the way is never published as a mixture: its parts are removed, and it is sent again later.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from concurrent.futures import Executor, Future
from typing import Optional, TypeVar

from overspan.bridge.runtime.data.folder_state import SyncedFile
from overspan.bridge.runtime.data.object_store import ObjectStore, ObjectStoreError, SentPart, StoreTrouble

T = TypeVar("T")

PART = 8 << 20
"""Bytes of a part; files up to this size are sent in one request."""
_MOST_PARTS = 10_000
TRIES = 3
"""How often a request is sent before its file waits."""
_FIRST_PAUSE = 0.2


class FileChanged(Exception):
    """The file was written to while it was sent, or since its turn was decided."""


def send_file(
    store: ObjectStore, path: str, key: str, executor: Executor, seen: Optional[tuple[int, int]] = None
) -> SyncedFile:
    """Send a file; parts by the executor's threads. Raises FileChanged, ObjectStoreError and OSError.

    `seen`: its size and last write (ns) when its turn was decided; a later version of it may speak of files that come
    later.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size, written = _look(fd)
        if seen is not None and seen != (size, written):
            raise FileChanged
        if size <= PART:
            data = _read(fd, size, 0)
            _check(fd, size, written)
            etag = insist(lambda: store.put(key, data))
        else:
            etag = _send_parts(store, fd, key, executor)
    finally:
        os.close(fd)
    return SyncedFile(size, written, etag)


def _send_parts(store: ObjectStore, fd: int, key: str, executor: Executor) -> str:
    size, written = _look(fd)
    length = max(PART, -(-size // _MOST_PARTS >> 20) + 1 << 20) if size > PART * _MOST_PARTS else PART
    upload = insist(lambda: store.begin_upload(key, length))

    def send(number: int) -> SentPart:
        data = _read(fd, min(length, size - (number - 1) * length), (number - 1) * length)
        return insist(lambda: store.put_part(key, upload, number, data))

    jobs: list[Future[SentPart]] = []
    try:
        jobs = [executor.submit(send, number) for number in range(1, -(-size // length) + 1)]
        parts = [job.result() for job in jobs]
        _check(fd, size, written)
        return insist(lambda: store.finish_upload(key, upload, parts))
    except BaseException:
        for job in jobs:
            job.cancel()
        for job in jobs:
            if not job.cancelled():
                # The file must stay open until no thread reads it.
                job.exception()
        try:
            store.abandon_upload(key, upload)
        except ObjectStoreError:
            pass  # Buckets have rules that remove what was never finished.
        raise


def insist(call: Callable[[], T], tries: int = TRIES) -> T:
    """Repeat a request that was not answered, for a moment. Raises ObjectStoreError."""
    pause = _FIRST_PAUSE
    while True:
        tries -= 1
        try:
            return call()
        except ObjectStoreError as error:
            if error.trouble is not StoreTrouble.SILENT or tries <= 0:
                raise
        time.sleep(pause)
        pause *= 2


def _look(fd: int) -> tuple[int, int]:
    status = os.fstat(fd)
    return status.st_size, status.st_mtime_ns


def _check(fd: int, size: int, written: int) -> None:
    if _look(fd) != (size, written):
        raise FileChanged


def _read(fd: int, size: int, offset: int) -> bytes:
    """Bytes of a file; FileChanged where it has become shorter."""
    parts = []
    while size:
        part = os.pread(fd, size, offset)
        if not part:
            raise FileChanged
        parts.append(part)
        size, offset = size - len(part), offset + len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
