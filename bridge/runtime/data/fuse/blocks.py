"""Parts of objects in memory: fetched when they are read, and ahead of a program that reads on.

An object is fetched in runs of blocks, several at once; how far ahead grows while a handle is read from front to back.
The memory for all blocks together is bounded: those that were used longest ago go first.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Executor, Future
from typing import Callable, Optional

from overspan.bridge.runtime.data.fuse.facts import RangeStore, StoreWaits
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject, StoreTrouble

BLOCK = 1 << 20
MEMORY = 64 << 20
"""Bytes of all blocks that are remembered."""
_RUN = 8
"""Blocks of one request at most."""
_AHEAD = 32
"""Blocks that are fetched ahead of a program at most."""

BlockKey = tuple[str, str, int]


class BlockCache:
    """The blocks of all objects of one store; called by several threads."""

    def __init__(self, store: RangeStore, waits: StoreWaits, executor: Executor, memory: int = MEMORY) -> None:
        self._store = store
        self._waits = waits
        self._executor = executor
        self._memory = memory
        self._lock = threading.Lock()
        self._blocks: OrderedDict[BlockKey, Future[bytes]] = OrderedDict()
        self._size = 0
        self._readers = 0
        """Handles that are read ahead for."""

    def count(self, change: int) -> None:
        """So many handles more read from front to back."""
        with self._lock:
            self._readers += change

    @property
    def farthest(self) -> int:
        """Blocks that one handle may be ahead: together they have to fit."""
        return max(1, min(_AHEAD, self._memory // BLOCK // 2 // max(1, self._readers)))

    def get(self, stored: StoredObject, first: int, last: int, ahead: int) -> list[Future[bytes]]:
        """The blocks from `first` to `last`, and have the fetch of those begin that are not there, and of more behind.

        What is ahead is fetched when half of it is used up, so that a request is for several blocks.
        """
        end = (stored.size - 1) // BLOCK
        with self._lock:
            until = min(last + ahead, end)
            middle = min(last + (ahead + 1) // 2, end)
            near = range(first, last + 1)
            missing = [number for number in near if self._key(stored, number) not in self._blocks]
            if missing or any(self._key(stored, number) not in self._blocks for number in range(last + 1, middle + 1)):
                missing += [each for each in range(last + 1, until + 1) if self._key(stored, each) not in self._blocks]
            for number in missing:
                self._blocks[self._key(stored, number)] = Future()
            found = []
            for number in near:
                key = self._key(stored, number)
                self._blocks.move_to_end(key)
                found.append(self._blocks[key])
            runs = [(run, [self._blocks[self._key(stored, number)] for number in run]) for run in _split(missing)]
        for run, futures in runs:
            self._executor.submit(self._fetch, stored, run, futures, self._waits.now)
        return found

    def _key(self, stored: StoredObject, number: int) -> BlockKey:
        return stored.key, stored.etag, number

    def _fetch(self, stored: StoredObject, run: Sequence[int], futures: Sequence[Future[bytes]], began: float) -> None:
        """Fetch a run of blocks, each of which is there for readers when it has come; it was asked for at `began`."""
        done = 0

        def ask() -> None:
            nonlocal done
            start = run[done] * BLOCK
            size = min(stored.size, (run[-1] + 1) * BLOCK) - start
            reader = self._store.open(stored.key, start, stored.etag, size)
            try:
                while done < len(run):
                    data = _read_whole(reader.read, min(BLOCK, stored.size - run[done] * BLOCK))
                    self._keep(stored, run[done], futures[done], data)
                    done += 1
            finally:
                reader.close()

        failure: Optional[BaseException] = None
        try:
            self._waits.insist(ask, began)
        except ObjectStoreError as error:
            # Another version is there by now, or none.
            failure = OSError(errno.ESTALE, f"{os.strerror(errno.ESTALE)}: {error}")
        except BaseException as error:
            failure = error
        if failure is not None:
            for number, future in zip(run[done:], futures[done:]):
                with self._lock:
                    if self._blocks.get(self._key(stored, number)) is future:
                        del self._blocks[self._key(stored, number)]
                future.set_exception(failure)

    def _keep(self, stored: StoredObject, number: int, future: Future[bytes], data: bytes) -> None:
        with self._lock:
            self._size += len(data)
            future.set_result(data)
            if self._size <= self._memory:
                return
            for key, each in list(self._blocks.items()):
                if each.done() and each is not future:
                    del self._blocks[key]
                    self._size -= len(each.result())
                    if self._size <= self._memory:
                        return


class ObjectHandle:
    """An object that is open for reading, in the version that it had then."""

    def __init__(self, cache: BlockCache, stored: StoredObject, node: int = 0) -> None:
        self.stored = stored
        self.node = node
        self._cache = cache
        self._next = 0
        self._ahead = 1
        self._counted = False

    def begin(self, offset: int, size: int) -> list[Future[bytes]]:
        """The blocks that a read needs; their fetch has begun."""
        size = min(size, self.stored.size - offset)
        if size <= 0:
            return []
        if abs(offset - self._next) <= BLOCK:
            # The kernel reads ahead by several requests at once, which come in any order.
            self._next = max(self._next, offset + size) if offset else size
            if not self._counted:
                self._counted = True
                self._cache.count(1)
            ahead = min(self._ahead, self._cache.farthest)
        else:
            self._next, self._ahead, ahead = offset + size, 1, 0
        first, last = offset // BLOCK, (offset + size - 1) // BLOCK
        if ahead and offset % BLOCK == 0:
            self._ahead = min(self._ahead * 2, _AHEAD)
        return self._cache.get(self.stored, first, last, ahead)

    def finish(self, blocks: Sequence[Future[bytes]], offset: int, size: int) -> list[memoryview]:
        """The bytes of a read, whose blocks have come or are waited for. Raises OSError."""
        parts = []
        start = offset // BLOCK * BLOCK
        for block in blocks:
            data = block.result()
            part = memoryview(data)[max(0, offset - start) : max(0, offset + size - start)]
            parts.append(part)
            start += BLOCK
        return parts

    def close(self) -> None:
        """No more is read."""
        if self._counted:
            self._counted = False
            self._cache.count(-1)


def _split(numbers: Sequence[int]) -> list[list[int]]:
    """Runs of numbers that follow each other, of a bounded length."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1 and len(runs[-1]) < _RUN:
            runs[-1].append(number)
        else:
            runs.append([number])
    return runs


def _read_whole(read: Callable[[int], bytes], size: int) -> bytes:
    """So many bytes. Raises ObjectStoreError where they do not come."""
    data = read(size)
    if len(data) == size:
        return data
    parts = [data]
    left = size - len(data)
    while left:
        part = read(left)
        if not part:
            raise ObjectStoreError(StoreTrouble.SILENT, "the store's answer ended early")
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
