"""The jobs in memory: every live one, and those that finished a short while ago."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from overspan.adapters.abilities import Written
from overspan.bridge.lifecycle.bids import find_bid
from overspan.bridge.model.job import Job
from overspan.bridge.store.records import Change, StoredJob

KEEP_SECONDS = 600.0
"""How long a finished job stays in memory (slurm.conf's MinJobAge is 300 s by default)."""
KEEP_FINISHED = 2000
"""How many finished jobs stay in memory at most; older ones are read from the store."""

NOWHERE = Written()
"""What is known of where a launch works and writes before it has a handle."""


@dataclass(slots=True)
class JobEntry:
    """A job with what only the daemon needs of it. Replaced in place, and only after a commit.

    What ends work is the exception: it has its effect also where nothing can be written, and the record follows.
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
    """The encoded queue row; None until somebody asks for it after a change."""
    task_rows: tuple[bytes, ...] | None = None
    needed_arrays: frozenset[int] = frozenset()
    """Which of the jobs that it waits for are arrays."""
    written: Written = NOWHERE
    """Where the newest launch works and writes on its cluster."""
    obstacle: str = ""
    """What hinders it that its facts do not tell, as the listings show it (`obstacles`)."""
    jumped: float = 0.0
    """By how much the machine's clock had been set, in all, when the job's times were last brought in line with it."""
    unwritten: Change | None = None
    """What has taken effect although it could not be written; None where the store has everything."""

    @property
    def launched(self) -> bool:
        """Whether the present launch is on the cluster, so that its decider has the say."""
        return bool(self.handle) and self.handle_launch == self.job.launch

    @property
    def watched(self) -> bool:
        """Whether news of it is wanted."""
        return self.launched and not self.job.over

    @property
    def refusal(self) -> str:
        """What the cluster said that refused the job for good; empty where none did."""
        ending = self.job.ending
        return ending.message if self.job.over and ending is not None else ""

    @property
    def shunned(self) -> bool:
        """Whether the job was refused for good by a cluster that never had it."""
        return bool(self.refusal) and not self.handle

    def places(self) -> tuple[str, ...]:
        """The clusters that have the job or are to have it, its bids' too."""
        return (self.cluster, *(bid.cluster for bid in self.job.bids))

    def watches(self, cluster: str) -> bool:
        """Whether news of its launch or bid on a cluster is wanted."""
        bid = find_bid(self.job, cluster)
        return self.watched if bid is None else bool(bid.handle)

    def cursor_of(self, handle: str) -> str:
        """How far the news of its launch or bid of that handle were read."""
        if handle == self.handle:
            return self.cursor
        return next((bid.cursor for bid in self.job.bids if bid.handle == handle), "")


def entry_of(stored: StoredJob) -> JobEntry:
    """The entry that the store's record describes."""
    launch, handle = split_handle(stored.handle)
    return JobEntry(stored.job, stored.cluster, stored.user, handle, launch, stored.native_id, stored.cursor)


def join_handle(launch: int, handle: str) -> str:
    """The handle as it is stored: the launch's number before it, so that an old handle is known as one."""
    return f"{launch}:{handle}"


def split_handle(stored: str) -> tuple[int, str]:
    """Launch number and handle; 0 and nothing where there was no launch yet."""
    number, colon, handle = stored.partition(":")
    return (int(number), handle) if colon else (0, "")


@dataclass(slots=True)
class JobLock:
    """The lock of a job, and how many hold it or wait for it."""

    job_id: int
    users: int = 0
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)


class Registry:
    """Entries by job id, and which handles are watched on each cluster."""

    def __init__(self) -> None:
        self._entries: dict[int, JobEntry] = {}
        self._finished: deque[tuple[float, int]] = deque()
        self._watched: dict[str, dict[str, int]] = {}
        self._owners: dict[int, int] = {}
        self._elements: dict[int, dict[int, JobEntry]] = {}
        self._locks: dict[int, JobLock] = {}
        self.live = 0
        self.written_of: Callable[[str, str], Written] = lambda cluster, handle: NOWHERE
        self.aside: frozenset[int] = frozenset()
        """Jobs that the store has and cannot read, or whose calls it cannot: nothing is done about them."""
        self.revision = 0
        """Grows with every change of what the listings show."""

    def __iter__(self) -> Iterator[JobEntry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, job_id: int) -> JobEntry | None:
        """The entry of a job, None where it is not in memory."""
        return self._entries.get(job_id)

    def owner(self, raw_id: int) -> int:
        """The job that a raw id belongs to: the id itself, except for the later tasks of a job."""
        return self._owners.get(raw_id, raw_id)

    def elements(self, array_id: int) -> Mapping[int, JobEntry]:
        """The elements of an array that are jobs and in memory, by index."""
        return self._elements.get(array_id, {})

    def read(self, stored: StoredJob) -> JobEntry:
        """The entry of a job that may be forgotten here."""
        entry = entry_of(stored)
        self.locate(entry)
        return entry

    def locate(self, entry: JobEntry) -> None:
        """Note where the entry's launch works and writes."""
        entry.written = self.written_of(entry.cluster, entry.handle)

    def add(self, entry: JobEntry) -> None:
        """Take a job in."""
        self.revision += 1
        job = entry.job
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
        """Give an entry its next facts; the caller has set handle and cursor before."""
        self.live += entry.job.over - job.over
        if job.over and not entry.job.over:
            self._finished.append((job.ended_at or 0.0, job.id))
        self._index_bids(entry, False)
        entry.job = job
        self.redraw(entry)
        self._index(entry, entry.watched)
        self._index_bids(entry, True)

    def hinder(self, entry: JobEntry, obstacle: str) -> None:
        """Say in the listings what hinders a job."""
        if entry.obstacle != obstacle:
            entry.obstacle = obstacle
            self.redraw(entry)

    def redraw(self, entry: JobEntry) -> None:
        """Have the listings make an entry's rows anew."""
        self.revision += 1
        entry.row = entry.task_rows = None
        if entry.job.element is not None:
            self._touch(entry.job.element.array)

    def _touch(self, array_id: int) -> None:
        """The row of an array tells which of its elements wait, so it changes with them."""
        array = self._entries.get(array_id)
        if array is not None:
            array.row = array.task_rows = None

    def unwatch(self, entry: JobEntry) -> None:
        """Stop watching the handle that is about to be replaced."""
        self._index(entry, False)

    def watched(self, cluster: str) -> dict[str, int]:
        """Job ids by handle of every launch and bid on the cluster that is not over."""
        return self._watched.get(cluster, {})

    def watched_clusters(self) -> list[str]:
        """The clusters that have any."""
        return [cluster for cluster, handles in self._watched.items() if handles]

    def forget_finished(self, now: float) -> None:
        """Let go of jobs that finished long ago, or are too many."""
        finished = self._finished
        while finished and (finished[0][0] < now - KEEP_SECONDS or len(finished) > KEEP_FINISHED):
            entry = self._entries.get(finished[0][1])
            if finished[0][1] in self._locks or (entry is not None and entry.unwritten is not None):
                return
            ended_at, job_id = finished.popleft()
            if entry is not None and entry.job.over and entry.job.ended_at == ended_at:
                self.remove(job_id)

    def remove(self, job_id: int) -> None:
        """Let go of a job."""
        self.revision += 1
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
        """Hold these jobs for a change. Taken in rising order, so that two changes never wait for each other."""
        held: list[JobLock] = []
        turns = [self._locks.setdefault(job_id, JobLock(job_id)) for job_id in sorted(set(job_ids))]
        for turn in turns:
            turn.users += 1
        try:
            for turn in turns:
                await turn.lock.acquire()
                held.append(turn)
            yield
        finally:
            for turn in held:
                turn.lock.release()
            for turn in turns:
                turn.users -= 1
                if not turn.users:
                    del self._locks[turn.job_id]

    def _index(self, entry: JobEntry, watched: bool) -> None:
        if entry.handle:
            handles = self._watched.setdefault(entry.cluster, {})
            if watched:
                handles[entry.handle] = entry.job.id
            else:
                handles.pop(entry.handle, None)

    def _index_bids(self, entry: JobEntry, watched: bool) -> None:
        for bid in entry.job.bids:
            if bid.handle and watched:
                self._watched.setdefault(bid.cluster, {})[bid.handle] = entry.job.id
            elif bid.handle:
                self.watched(bid.cluster).pop(bid.handle, None)
