"""The registry: the jobs in memory, which are all live ones and those that finished a short while ago."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from overspan.adapters.abilities import Written
from overspan.adapters.cursors import Cursors
from overspan.bridge.controller.core.listing_changes import ListingChanges
from overspan.bridge.lifecycle.bids import find_bid
from overspan.bridge.lifecycle.stages import find_ended
from overspan.bridge.model.job import Job
from overspan.bridge.store.records import Change, StoredJob

KEEP_SECONDS = 600.0
"""How long a finished job stays in memory, seconds (slurm.conf's MinJobAge is 300 s by default)."""
KEEP_FINISHED = 2000
"""How many finished jobs stay in memory at most; older ones are read from the store."""

NOWHERE = Written()
"""What is known of where a launch works and writes before it has a handle."""
_NONE: Mapping[str, Written] = {}
_NO_MEMBERS: Mapping[str, int] = {}
WrittenOf = Callable[[str, str], Written]
"""Where a launch works and writes, by its cluster and its handle."""


@dataclass(slots=True)
class JobEntry:
    """A job's facts with what only the daemon needs beside them.

    Facts (`job`, `handle`, `native_id`, `cursor`, `cluster`) change in place, and only after a commit. Exception: what
    ends work takes effect even if it cannot be stored; `unwritten` then has the change. The rest is not stored, so it
    may change at any time.
    """

    job: Job
    cluster: str
    user: str
    handle: str = ""
    """The adapter's name of the newest launch; it stays when the launch has ended, for the logs."""
    handle_launch: int = 0
    """The number of the launch that the handle names."""
    native_id: str = ""
    cursor: str = ""
    retry_at: float | None = None
    """When a submission that was refused for now is tried again."""
    row: bytes | None = None
    """The encoded queue row, a cache: what no other job has of it; None after a change."""
    row_rest: bytes = b""
    """The rest of it, one object for all jobs that have the same."""
    task_rows: tuple[bytes, ...] | None = None
    needed_arrays: frozenset[int] = frozenset()
    """Which of the jobs that it waits for are arrays."""
    written: Written = NOWHERE
    """Where the newest launch works and writes on its cluster."""
    ended_written: Mapping[str, Written] = field(default_factory=lambda: _NONE)
    """The same of the launches of ended stages, by handle."""
    obstacle: str = ""
    """Why it waits where no fact of the job tells it, as the listings show it (`obstacles`)."""
    further: Mapping[str, int] = field(default_factory=lambda: _NO_MEMBERS)
    """How many further members of its elastic tasks have a place, by task."""
    jumped: float = 0.0
    """The total of clock jumps, in seconds, that the job's times already include."""
    unwritten: Change | None = None
    """The change that took effect but could not be stored; None if the store has everything."""

    @property
    def launched(self) -> bool:
        """Whether the present launch is on the cluster, so that the launch's decider decides."""
        return bool(self.handle) and self.handle_launch == self.job.launch

    @property
    def watched(self) -> bool:
        """Whether reports of the present launch are wanted."""
        return self.launched and not self.job.over

    @property
    def refusal(self) -> str:
        """The message of the cluster that refused the job for good; empty if none did."""
        ending = self.job.ending
        return ending.message if self.job.over and ending is not None else ""

    @property
    def shunned(self) -> bool:
        """Whether the job was refused for good by a cluster that never had it."""
        return bool(self.refusal) and not self.handle

    def written_of(self, task: str) -> Written:
        """Where the launch that carries a task, or carried it last, works and writes."""
        ended, stage = find_ended(self.job, task), self.job.stage
        if ended is not None:
            return self.written if ended.handle == self.handle else self.ended_written.get(ended.handle, NOWHERE)
        carried = stage is None or (task in stage.tasks and self.handle_launch >= stage.launch)
        return self.written if carried else NOWHERE

    def places(self) -> tuple[str, ...]:
        """The clusters that have the job or are to have it, those of its bids included."""
        return (self.cluster, *(bid.cluster for bid in self.job.bids))

    def watches(self, cluster: str) -> bool:
        """Whether reports of its launch or bid on a cluster are wanted."""
        bid = find_bid(self.job, cluster)
        return self.watched if bid is None else bool(bid.handle)

    def cursor_of(self, handle: str) -> str:
        """The cursor of its launch or bid of that handle."""
        if handle == self.handle:
            return self.cursor
        return next((bid.cursor for bid in self.job.bids if bid.handle == handle), "")


def entry_of(stored: StoredJob) -> JobEntry:
    """The entry that the store's record describes."""
    launch, handle = split_handle(stored.handle)
    return JobEntry(stored.job, stored.cluster, stored.user, handle, launch, stored.native_id, stored.cursor)


def join_handle(launch: int, handle: str) -> str:
    """The handle as it is stored, after the launch's number, which tells a handle of an older launch."""
    return f"{launch}:{handle}"


def split_handle(stored: str) -> tuple[int, str]:
    """Launch number and handle; 0 and empty if there was no launch yet."""
    number, colon, handle = stored.partition(":")
    return (int(number), handle) if colon else (0, "")


@dataclass(slots=True)
class JobLock:
    """The lock of a job, with the number of its users: the holder and those that wait."""

    job_id: int
    users: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Registry:
    """Entries by job id, and which handles are watched on each cluster."""

    def __init__(self, written_of: WrittenOf = lambda cluster, handle: NOWHERE) -> None:
        self._written_of = written_of
        self._entries: dict[int, JobEntry] = {}
        self._finished: deque[tuple[float, int]] = deque()
        self._watched: dict[str, dict[str, int]] = {}
        self._cursors: dict[str, Cursors] = {}
        self._owners: dict[int, int] = {}
        self._elements: dict[int, dict[int, JobEntry]] = {}
        self._locks: dict[int, JobLock] = {}
        self.storing: set[str] = set()
        """The handles of launches that were accepted with jobs which are just being stored."""
        self.live = 0
        self.aside: frozenset[int] = frozenset()
        """Jobs whose stored rows, or whose owed calls, cannot be read: the daemon leaves them alone."""
        self.changes = ListingChanges()
        """Of what the listings show."""

    @property
    def revision(self) -> int:
        """Grows with every change that the listings show."""
        return self.changes.revision

    def __iter__(self) -> Iterator[JobEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, job_id: int) -> JobEntry | None:
        """The entry of a job; None if it is not in memory."""
        return self._entries.get(job_id)

    def owner(self, raw_id: int) -> int:
        """The job that a raw id belongs to: the second and later tasks of a job have raw ids of their own."""
        return self._owners.get(raw_id, raw_id)

    def set_aside(self, job_ids: Iterable[int]) -> None:
        """Name the jobs whose stored rows cannot be read."""
        self.aside = frozenset(job_ids)

    def elements(self, array_id: int) -> Mapping[int, JobEntry]:
        """The elements of an array that are jobs in memory, by index."""
        return self._elements.get(array_id, {})

    def read(self, stored: StoredJob) -> JobEntry:
        """An entry for a job read from the store, which the registry need not have."""
        entry = entry_of(stored)
        self.locate(entry)
        return entry

    def locate(self, entry: JobEntry) -> None:
        """Set the work and output paths of the entry's launches."""
        entry.written = self._written_of(entry.cluster, entry.handle)
        if entry.job.ended_stages:
            named = [ended for ended in entry.job.ended_stages if ended.handle]
            entry.ended_written = {ended.handle: self._written_of(ended.cluster, ended.handle) for ended in named}

    def add(self, entry: JobEntry) -> None:
        job = entry.job
        self.changes.note(job.id)
        self.locate(entry)
        self._entries[job.id] = entry
        if job.element is not None:
            self._elements.setdefault(job.element.array, {})[job.element.index] = entry
            self._touch(job.element.array)
        for offset in range(1, len(job.tasks)):
            self._owners[job.id + offset] = job.id
        self.live += not job.over
        if job.over:
            self._finished.append((job.ended_at or 0.0, job.id))
        self._index(entry, entry.watched)
        self._index_bids(entry, True)

    def put(self, entry: JobEntry, job: Job) -> None:
        """Replace an entry's facts; the caller has set handle and cursor before."""
        self.live += entry.job.over - job.over
        if job.over and not entry.job.over:
            self._finished.append((job.ended_at or 0.0, job.id))
        self._index_bids(entry, False)
        entry.job = job
        self.redraw(entry)
        self._index(entry, entry.watched)
        self._index_bids(entry, True)

    def hinder(self, entry: JobEntry, obstacle: str) -> None:
        """Set the obstacle that the listings show for a job."""
        if entry.obstacle != obstacle:
            entry.obstacle = obstacle
            self.redraw(entry)

    def count_further(self, entry: JobEntry, further: Mapping[str, int]) -> None:
        """Set how many further members of its elastic tasks have a place, which the listings show."""
        if entry.further != further:
            entry.further = further
            self.redraw(entry)

    def redraw(self, entry: JobEntry) -> None:
        """Drop an entry's cached rows."""
        self.changes.note(entry.job.id)
        entry.row = entry.task_rows = None
        if entry.job.element is not None:
            self._touch(entry.job.element.array)

    def _touch(self, array_id: int) -> None:
        """Drop an array's cached rows: they tell which elements wait, so they change with them."""
        array = self._entries.get(array_id)
        if array is not None:
            array.row = array.task_rows = None
            self.changes.note(array_id)

    def unwatch(self, entry: JobEntry) -> None:
        """Stop watching the handle that is about to be replaced."""
        self._index(entry, False)

    def watched(self, cluster: str) -> dict[str, int]:
        """Job ids by handle of every launch and bid on the cluster that is not over."""
        return self._watched.get(cluster, {})

    def cursors(self, cluster: str) -> Cursors:
        """The stored cursors of all that is watched on the cluster, kept up to date."""
        return self._cursors.setdefault(cluster, Cursors())

    def watched_clusters(self) -> list[str]:
        """The clusters that have any."""
        return [cluster for cluster, handles in self._watched.items() if handles]

    def forget_finished(self, now: float) -> None:
        """Remove jobs that finished more than KEEP_SECONDS ago, and the oldest beyond KEEP_FINISHED."""
        finished = self._finished
        while finished and (finished[0][0] < now - KEEP_SECONDS or len(finished) > KEEP_FINISHED):
            entry = self._entries.get(finished[0][1])
            if finished[0][1] in self._locks or (entry is not None and entry.unwritten is not None):
                return
            ended_at, job_id = finished.popleft()
            if entry is not None and entry.job.over and entry.job.ended_at == ended_at:
                self.remove(job_id)

    def remove(self, job_id: int) -> None:
        """Remove an entry."""
        self.changes.note(job_id)
        entry = self._entries.pop(job_id)
        self._index(entry, False)
        self._index_bids(entry, False)
        self.live -= not entry.job.over
        if entry.job.element is not None:
            elements = self._elements.get(entry.job.element.array, {})
            elements.pop(entry.job.element.index, None)
            if not elements:
                self._elements.pop(entry.job.element.array, None)
        for offset in range(1, len(entry.job.tasks)):
            self._owners.pop(job_id + offset, None)

    @contextlib.asynccontextmanager
    async def locked(self, job_ids: Iterable[int]) -> AsyncIterator[None]:
        """Hold the locks of these jobs. They are taken in rising order, so that two changes never deadlock."""
        held: list[JobLock] = []
        locks = [self._locks.setdefault(job_id, JobLock(job_id)) for job_id in sorted(set(job_ids))]
        for lock in locks:
            lock.users += 1
        try:
            for lock in locks:
                await lock.lock.acquire()
                held.append(lock)
            yield
        finally:
            for lock in held:
                lock.lock.release()
            for lock in locks:
                lock.users -= 1
                if not lock.users:
                    del self._locks[lock.job_id]

    def _index(self, entry: JobEntry, watched: bool) -> None:
        if entry.handle:
            if entry.handle == entry.native_id:
                # One object: the adapter has it too, and there may be 100,000.
                entry.handle = entry.native_id
            handles = self._watched.setdefault(entry.cluster, {})
            if watched:
                handles[entry.handle] = entry.job.id
                self.cursors(entry.cluster).put(entry.handle, entry.cursor)
            else:
                handles.pop(entry.handle, None)
                self.cursors(entry.cluster).leave(entry.handle)

    def _index_bids(self, entry: JobEntry, watched: bool) -> None:
        for bid in entry.job.bids:
            if bid.handle and watched:
                self._watched.setdefault(bid.cluster, {})[bid.handle] = entry.job.id
                self.cursors(bid.cluster).put(bid.handle, bid.cursor)
            elif bid.handle:
                self.watched(bid.cluster).pop(bid.handle, None)
                self.cursors(bid.cluster).leave(bid.handle)
