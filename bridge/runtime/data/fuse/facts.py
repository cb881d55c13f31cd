"""What a store has below a prefix, as names of files and folders, remembered for some seconds.

A name is asked for by itself until several of its folder were; then the whole folder is listed, if that is not long.
"""

from __future__ import annotations

import errno
import itertools
import threading
import time
from collections import OrderedDict
from typing import Callable, Optional, Protocol, TypeVar

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.object_store import (
    ObjectReader,
    ObjectStoreError,
    ReadableStore,
    StoredObject,
    StoreTrouble,
)
from overspan.bridge.runtime.data.peers import FOLDER as PEERS

T = TypeVar("T")

FACTS_SECONDS = 10.0
"""For how long what the store has said counts: what others write is seen after it."""
PATIENCE = {StoreTrouble.SILENT: 15 * 60.0, StoreTrouble.DENIED: 60.0}
"""Seconds for which a store may not answer, or refuse the credentials, before a program is told of it. A program that
is killed is let go at once.
"""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.2, 5.0
TOLD_AFTER = 30.0
"""Seconds of waiting after which a program's user is told what it waits for."""
_ASKED_ALONE = 4
"""So many names of a folder are asked for one by one."""
_LISTED_AT_ONCE = 20_000
"""A folder with more names is listed only where a program lists it."""
_MOST_REMEMBERED = 200_000


class RangeStore(ReadableStore, Protocol):
    """What is asked of a store: parts of objects too."""

    def open(self, key: str, offset: int = 0, etag: str = "", size: int = 0) -> ObjectReader:
        """As of `ReadableStore`; with a size no more than so many bytes."""


class StoreEntry(NamedTuple):
    """An object, or a folder of objects."""

    stored: StoredObject
    is_folder: bool = False


class StoreListing(NamedTuple):
    """The names in a folder, and the object for the folder itself, where the store has one."""

    entries: dict[str, StoreEntry]
    marker: Optional[StoredObject]


class StoreWaits:
    """Asks a store until it answers, for a while, and says once what keeps it."""

    def __init__(
        self,
        log: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._log = log
        self._clock = clock
        self._sleep = sleep
        self._said = ""
        self._told = False
        self._silent: Optional[ObjectStoreError] = None
        """What the store failed with, if it has answered nobody since."""

    @property
    def now(self) -> float:
        """The time from which `insist` may count."""
        return self._clock()

    def insist(self, ask: Callable[[], T], began: Optional[float] = None) -> T:
        """The answer. Raises ObjectStoreError of MISSING and TAKEN as they are, and OSError where nothing helps.

        `began`: the program has waited from then, behind others, which counts as long as the store answers nobody.
        """
        began, pause = self._clock() if began is None else began, _FIRST_PAUSE
        silent = self._silent
        if silent is not None and self._clock() - began >= PATIENCE[StoreTrouble.SILENT]:
            raise self._fail(silent)
        while True:
            try:
                answer = ask()
                self._said, self._told, self._silent = "", False, None
                return answer
            except ObjectStoreError as error:
                self._silent = error if error.trouble is StoreTrouble.SILENT else None
                if error.trouble in (StoreTrouble.MISSING, StoreTrouble.TAKEN):
                    raise
                waited = self._clock() - began
                if waited >= PATIENCE.get(error.trouble, 0.0):
                    raise self._fail(error) from None
                if waited >= TOLD_AFTER and not self._told:
                    self._told = True
                    self._log(f"span: the program waits for its storage: {error}")
            self._sleep(pause)
            pause = min(pause * 2, _LONGEST_PAUSE)

    def insist_bucket(self, ask: Callable[[], T]) -> T:
        """The same of a listing, which is there where the bucket is."""
        try:
            return self.insist(ask)
        except ObjectStoreError as error:
            raise self._fail(error) from None

    def _fail(self, error: ObjectStoreError) -> OSError:
        if str(error) != self._said:
            self._said = str(error)
            self._log(f"span: error: {error}")
        return OSError(errno.EACCES if error.trouble is StoreTrouble.DENIED else errno.EIO, str(error))


class StoreFacts:
    """The names below a prefix; called by several threads. Names are relative to it, the empty one is the prefix."""

    def __init__(
        self, store: RangeStore, prefix: str, waits: StoreWaits, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._waits = waits
        self._clock = clock
        self._lock = threading.Lock()
        self._found: OrderedDict[str, tuple[float, Optional[StoreEntry]]] = OrderedDict()
        self._listed: OrderedDict[str, tuple[float, StoreListing]] = OrderedDict()
        self._asked: dict[str, tuple[float, int]] = {}
        """How many names of a folder were asked for one by one since then."""
        self._busy: dict[str, threading.Lock] = {}

    def find(self, name: str) -> Optional[StoreEntry]:
        """What the store has of that name. Raises OSError."""
        folder, _, last = name.rpartition("/")
        known = self._recall(name, folder, last)
        if known is not None:
            return known[0]
        with self._lock_name(name):
            known = self._recall(name, folder, last)
            if known is not None:
                return known[0]
            listing = self._list_often(folder)
            entry = listing.entries.get(last) if listing is not None else self._ask(name)
            with self._lock:
                self._found[name] = self._clock(), entry
                while len(self._found) > _MOST_REMEMBERED:
                    self._found.popitem(last=False)
            return entry

    def list_folder(self, name: str) -> StoreListing:
        """What is in a folder; empty where there is none. Raises OSError."""
        with self._lock_name(f"{name}/"):
            with self._lock:
                known = self._listed.get(name)
            if known is not None and self._is_fresh(known[0]):
                return known[1]
            listing = self._list(name, 0)
            assert listing is not None
            return listing

    def list_below(self, name: str) -> list[tuple[str, StoredObject]]:
        """All objects below a folder with their names, as the store has them now. Raises OSError."""
        head = f"{self._prefix}{name}/"
        found = self._waits.insist_bucket(lambda: list(self._store.list_objects(head)))
        return [(stored.key[len(self._prefix) :], stored) for stored in found]

    def forget(self, name: str) -> None:
        """A file was written, or removed: what was known of it does not count any more."""
        folder = name.rpartition("/")[0]
        with self._lock:
            self._found.pop(name, None)
            self._listed.pop(folder, None)
            self._listed.pop(name, None)

    def key_of(self, name: str) -> str:
        """The key of a name."""
        return f"{self._prefix}{name}"

    def _recall(self, name: str, folder: str, last: str) -> Optional[tuple[Optional[StoreEntry]]]:
        with self._lock:
            listed = self._listed.get(folder)
            if listed is not None and self._is_fresh(listed[0]):
                return (listed[1].entries.get(last),)
            found = self._found.get(name)
            return (found[1],) if found is not None and self._is_fresh(found[0]) else None

    def _is_fresh(self, at: float) -> bool:
        return self._clock() - at < FACTS_SECONDS

    def _lock_name(self, name: str) -> threading.Lock:
        """Two that ask for the same at once ask the store once."""
        with self._lock:
            if len(self._busy) > _MOST_REMEMBERED:
                self._busy = {key: lock for key, lock in self._busy.items() if lock.locked()}
            return self._busy.setdefault(name, threading.Lock())

    def _list_often(self, folder: str) -> Optional[StoreListing]:
        """A folder's listing where several of its names were asked for; None where that is rare, or it is long."""
        now = self._clock()
        with self._lock:
            since, count = self._asked.get(folder, (now, 0))
            if now - since >= FACTS_SECONDS and count >= 0:
                since, count = now, 0
            self._asked[folder] = (since, count + 1) if count >= 0 else (since, count)
        if 0 <= count < _ASKED_ALONE or (count < 0 and now - since < 60 * FACTS_SECONDS):
            return None
        listing = self._list(folder, _LISTED_AT_ONCE)
        with self._lock:
            # Below zero: it is long, so it is not tried again for a while.
            self._asked[folder] = (now, -1) if listing is None else (now, 0)
        return listing

    def _list(self, name: str, most: int) -> Optional[StoreListing]:
        """Ask for a folder; None where it has more than `most` names, if that is not 0."""
        head = f"{self._prefix}{name}/" if name else self._prefix
        entries: dict[str, StoreEntry] = {}
        marker: Optional[StoredObject] = None

        def ask() -> list[StoredObject]:
            objects = self._store.list_objects(head, level=True)
            return list(itertools.islice(objects, most + 1) if most else objects)

        found = self._waits.insist_bucket(ask)
        if most and len(found) > most:
            return None
        for stored in found:
            last = stored.key[len(head) :].rstrip("/")
            if not last:
                marker = stored
            elif last not in (".", "..") and "/" not in last and not stored.key.startswith(PEERS):
                is_folder = stored.key.endswith("/")
                if is_folder or last not in entries:
                    entries[last] = StoreEntry(stored, is_folder)
        listing = StoreListing(entries, marker)
        with self._lock:
            self._listed[name] = self._clock(), listing
            self._listed.move_to_end(name)
            while (
                len(self._listed) > 1 and sum(len(each.entries) for _, each in self._listed.values()) > _MOST_REMEMBERED
            ):
                self._listed.popitem(last=False)
        return listing

    def _ask(self, name: str) -> Optional[StoreEntry]:
        """Ask for one name: an object, else objects below it."""
        key = self.key_of(name)
        if key.startswith(PEERS.rstrip("/")):
            return None
        try:
            return StoreEntry(self._waits.insist(lambda: self._store.find(key)))
        except ObjectStoreError:
            pass
        first = self._waits.insist_bucket(lambda: next(iter(self._store.list_objects(f"{key}/", level=True)), None))
        return None if first is None else StoreEntry(StoredObject(f"{key}/", 0, ""), True)
