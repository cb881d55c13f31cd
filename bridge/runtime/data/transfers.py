"""Transfers that a user asks for: files and folders to a store and from it."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from typing import Optional

from overspan.bridge.runtime.data.cached_folder import SMALL_AT_ONCE, Senders, list_files
from overspan.bridge.runtime.data.fetching import download, list_wanted
from overspan.bridge.runtime.data.hashes import hash_path
from overspan.bridge.runtime.data.object_store import ObjectStore, ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.publication import UnsentFile, merge_steps, plan_steps
from overspan.bridge.runtime.data.sending import PART, FileChanged, send_file

_THREADS = 4


class TransferProgress:
    """How far a transfer is; read by other threads than its own."""

    def __init__(self) -> None:
        self.files = self.size = 0
        self.total_files = self.total_size = 0
        self.links = 0
        """Symbolic links, which no store can hold."""
        self.cancelled = False

    def expect(self, files: int, size: int) -> None:
        """So much is to be done."""
        self.total_files, self.total_size = files, size

    def add(self, size: int) -> None:
        """A file is done. Raises InterruptedError where the transfer was cancelled."""
        self.files, self.size = self.files + 1, self.size + size
        if self.cancelled:
            raise InterruptedError(errno.EINTR, "cancelled")


def send_path(store: ObjectStore, source: str, key: str, progress: TransferProgress) -> None:
    """Send a file as that object, or a folder below that prefix, markers last; what is there already with the same
    content is passed over. Raises ObjectStoreError and OSError.
    """
    with open_threads() as senders:
        if not os.path.isdir(source):
            status = os.stat(source)
            progress.expect(1, status.st_size)
            _send_settled(store, source, key, senders.parts)
            progress.add(status.st_size)
            return
        files = {name: os.path.join(source, name) for name, _ in list_files(source)}
        send_files(store, files, f"{key}/" if key else "", progress)


def send_files(store: ObjectStore, files: Mapping[str, str], prefix: str, progress: TransferProgress) -> None:
    """Send files, each under its name behind the prefix, several at once and markers last; what is there already with
    the same content is passed over. Raises ObjectStoreError and OSError.
    """
    seen = {name: os.stat(path) for name, path in files.items()}
    progress.expect(len(files), sum(status.st_size for status in seen.values()))
    there = {stored.key[len(prefix) :]: stored for stored in store.list_objects(prefix)}

    def send(name: str) -> None:
        size = seen[name].st_size
        if not _is_same(files[name], size, there.get(name)):
            _send_settled(store, files[name], prefix + name, senders.parts)
        progress.add(size)

    unsent = [UnsentFile(name, status.st_size, status.st_mtime_ns, True) for name, status in seen.items()]
    with open_threads() as senders:
        for step in merge_steps(plan_steps(unsent)):
            _finish([senders.choose(seen[name].st_size).submit(send, name) for name in step.names])


def _send_settled(store: ObjectStore, path: str, key: str, executor: Executor) -> None:
    """Send a file that should not be written to meanwhile. Raises OSError where it is."""
    try:
        send_file(store, path, key, executor)
    except FileChanged:
        raise OSError(errno.EAGAIN, "the file changes while it is sent", path) from None


def receive_path(store: ObjectStore, key: str, target: str, progress: TransferProgress) -> None:
    """Fetch an object into a file, or all below a prefix into a folder; what is there already with the same content
    is passed over. Raises ObjectStoreError, OSError and DataRefused.
    """
    wanted = list_wanted(store, key, single=True)
    if not wanted:
        raise ObjectStoreError(StoreTrouble.MISSING, f"there is nothing at {key}")
    progress.expect(len(wanted), sum(stored.size for stored in wanted.values()))

    def receive(name: str, stored: StoredObject) -> None:
        path = os.path.join(target, name) if name else target
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if not (os.path.isfile(path) and _is_same(path, os.path.getsize(path), stored)):
            download(store, stored, f"{path}.overspan-part")
            os.replace(f"{path}.overspan-part", path)
        progress.add(stored.size)

    with ThreadPoolExecutor(_THREADS) as executor:
        _finish([executor.submit(receive, name, stored) for name, stored in wanted.items()])


def _is_same(path: str, size: int, stored: Optional[StoredObject]) -> bool:
    if stored is None or stored.size != size:
        return False
    return hash_path(path, stored, PART) == stored.etag


def _finish(jobs: list[Future[None]]) -> None:
    """Wait for all; the first failure, or a user who wants no more, keeps what has not begun from beginning."""
    done = wait(jobs, return_when=FIRST_EXCEPTION).done
    for job in jobs:
        job.cancel()
    for job in done:
        job.result()


@contextmanager
def open_threads() -> Iterator[Senders]:
    """Threads of a transfer, which end with it."""
    counts = (_THREADS, _THREADS, SMALL_AT_ONCE)
    with ExitStack() as opened:
        yield Senders(*(opened.enter_context(ThreadPoolExecutor(count)) for count in counts))
