"""The launches of a pool: those that wait, and those that a worker holds by a lease.

A lease is (launch, worker): it is decided here, told as `Granted`, and handed to the worker only after the store has
it, which the next observation's cursor shows. The number of the launch is its fence: a worker that has lost a lease can
report nothing about the next launch of the job.

A cursor is `q:LIFE:COUNT` behind so many events of a launch that waits, where LIFE names this process's; and
`w:WORKER:OFFSET` behind so many bytes of the journal that its worker writes.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from overspan.adapters.bookings import Booking
from overspan.adapters.local.files.journals import parse_lines, read_events
from overspan.adapters.pool.requests import WorkerRequest
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Granted,
    Hold,
    LaunchLost,
    Queued,
    Release,
    SetNice,
    SetPriority,
    event_to_document,
)
from overspan.bridge.model.job import Job
from overspan.bridge.model.ranks import Rank, change_rank, rank_job
from overspan.bridge.runtime.pool.exchanges import END_LINE

Line = dict[str, object]
WORKER_VERSION = "WorkerVersion"
"""The reason of a launch that no worker's version can run."""
LOOPBACK = "127.0.0.1"


class LeaseCursor(NamedTuple):
    """How far the journal of a worker is stored."""

    worker: str
    offset: int


_UNTOLD: tuple[Event, ...] = ()
_NO_ORDERS: tuple[Line, ...] = ()
_NO_TOKENS: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class WorkerLease:
    """What a worker has of a launch, until the end is stored."""

    worker: str = ""
    """Who holds it; empty while the launch waits."""
    node: str = ""
    booking: Booking | None = None
    addresses: tuple[str, ...] = ()
    """That of each member in `booking`, where these have names."""
    granted_at: float = 0.0
    told_grant: bool = False
    """Whether it was reported, so that it may be stored by now."""
    leased: bool = False
    """Whether the store has it, so that the worker may have it."""
    base: int = 0
    """The offset of `journal`: what is before it is stored."""
    journal: bytes = b""
    orders: tuple[Line, ...] = _NO_ORDERS
    """What this daemon has ordered since then."""
    order_base: int | None = None
    """How many orders of earlier daemons the worker has; None until it has said so."""
    obeyed: int = 0
    """How many of this daemon's orders the worker has."""
    lost: LaunchLost | None = None


NO_LEASE = WorkerLease()
"""That of all launches that wait, which is never changed."""


@dataclass(slots=True)
class PoolLaunch:
    """A launch of the pool, until its end is stored. One that waits is small: there may be 100,000."""

    handle: str
    job: int
    number: int
    task: str
    behind: int
    """Nice less priority."""
    nice: int
    submitted_at: float
    array: int
    """The job, for an element its array."""
    element: int
    """The element's index; -1 for a job that is none."""
    request: WorkerRequest
    since: float
    held: bool = False
    reason: str = "None"
    """Why it waits, as it was told last."""
    told: tuple[Event, ...] = _UNTOLD
    """What happened to it while it waited."""
    lease: WorkerLease = field(default_factory=lambda: NO_LEASE)
    tokens: Mapping[str, int] = field(default_factory=lambda: _NO_TOKENS)
    """The number of the order of each token, among those of the lease; 0 for one that was carried out here."""
    left: bool = False
    """Whether it has ended while it waited."""

    @property
    def rank(self) -> Rank:
        """Its place in the queue."""
        return Rank(self.behind, self.submitted_at, self.array, self.element)

    @property
    def waits(self) -> bool:
        """Whether it is to be in the queue."""
        return not self.lease.worker and not self.held and not self.left

    @property
    def ended(self) -> bool:
        """Whether its journal is whole."""
        return self.lease.journal.endswith(END_LINE)

    @property
    def received(self) -> int:
        """How much of the journal is here."""
        return self.lease.base + len(self.lease.journal)

    def take_journal(self, offset: int, data: bytes) -> bool:
        """Take in what its worker has written behind an offset; False where that leaves a gap or brings nothing."""
        known = self.received - offset
        if known < 0 or len(data) <= known:
            return False
        self.lease.journal += data[known:]
        return True

    def trim(self, offset: int) -> None:
        """Drop what is stored of the journal."""
        if self.lease.base < offset <= self.received:
            self.lease.journal, self.lease.base = self.lease.journal[offset - self.lease.base :], offset

    def add_order(self, token: str, event: Event) -> None:
        """Order something of the worker, once for each token."""
        if token not in self.tokens:
            self.lease.orders += ({"token": token, "event": event_to_document(event)},)
            self.note_token(token, len(self.lease.orders))

    def note_token(self, token: str, number: int) -> None:
        """Note the number of an order, 0 for one that was carried out here."""
        self.tokens = {**self.tokens, token: number}

    def note_obeyed(self, count: int) -> None:
        """Note how many orders the worker has, those of earlier daemons included."""
        if self.lease.order_base is None:
            self.lease.order_base = count
        self.lease.obeyed = max(self.lease.obeyed, count - self.lease.order_base)

    def list_unheard(self) -> list[Line]:
        """The orders that the worker has not said to have, with their numbers."""
        base = self.lease.order_base or 0
        numbered = enumerate(self.lease.orders[self.lease.obeyed :], base + self.lease.obeyed + 1)
        return [{"seq": number, **line} for number, line in numbered]

    def has_obeyed(self, token: str) -> bool:
        """Whether the worker has the order of that token."""
        return self.tokens.get(token, 0) <= self.lease.obeyed

    def note_offer(self, offered: Collection[frozenset[str]], now: float) -> bool:
        """Note whether a worker's version can run it, given what those of workers can; True where that is news."""
        features = self.request.features
        lacking = features and offered and not any(features <= each for each in offered)
        reason = WORKER_VERSION if lacking else "None"
        if self.reason == reason:
            return False
        self.note(Queued(now, reason))
        return True

    def note(self, event: Event) -> None:
        """Apply an event to a launch that waits."""
        self.told += (event,)
        if isinstance(event, Hold):
            self.held = True
        elif isinstance(event, Release):
            # The job's reason is None again.
            self.held, self.reason = False, "None"
        elif isinstance(event, SetPriority | SetNice):
            rank, self.nice = change_rank(self.rank, self.nice, event)
            self.behind = rank.behind
        elif isinstance(event, Queued):
            self.reason = event.reason
        elif isinstance(event, Cancel | Expire | LaunchLost):
            self.left = True


def make_launch(job: Job, request: WorkerRequest, now: float) -> PoolLaunch:
    """The present launch of a job, as it waits."""
    rank = rank_job(job)
    return PoolLaunch(
        handle=f"{job.id}.{job.launch}",
        job=job.id,
        number=job.launch,
        task=job.spec.tasks[0].name,
        behind=rank.behind,
        nice=job.nice,
        submitted_at=rank.submitted_at,
        array=rank.job,
        element=rank.element,
        request=request,
        since=now,
        held=job.held,
        reason=job.reason if job.reason == WORKER_VERSION else "None",
    )


class LaunchIndex:
    """The launches that each worker holds, or is to have."""

    def __init__(self) -> None:
        self._by_worker: dict[str, dict[str, PoolLaunch]] = {}

    def add(self, launch: PoolLaunch) -> None:
        """Add a launch that has a worker."""
        if launch.lease.worker:
            self._by_worker.setdefault(launch.lease.worker, {})[launch.handle] = launch

    def remove(self, launch: PoolLaunch) -> None:
        """Remove a launch, if it is there."""
        launches = self._by_worker.get(launch.lease.worker, {})
        if launches.pop(launch.handle, None) is not None and not launches:
            del self._by_worker[launch.lease.worker]

    def of(self, worker: str) -> list[PoolLaunch]:
        """The launches of a worker."""
        return list(self._by_worker.get(worker, {}).values())

    def list_workers(self) -> list[str]:
        """The workers that have any."""
        return list(self._by_worker)


def parse_cursor(cursor: str) -> LeaseCursor | None:
    """The lease that a cursor tells of; None where the launch still waited."""
    kind, _, rest = cursor.partition(":")
    worker, _, offset = rest.rpartition(":")
    return LeaseCursor(worker, int(offset)) if kind == "w" and offset.isdecimal() else None


def project(launch: PoolLaunch, cursor: str, life: str) -> tuple[Sequence[Event], str]:
    """The events of a launch behind a cursor, and the cursor behind them."""
    lease = parse_cursor(cursor)
    if lease is not None and lease.worker == launch.lease.worker:
        return _project_journal(launch, lease)
    kind, _, rest = cursor.partition(":")
    own, _, count = rest.rpartition(":")
    told = int(count) if kind == "q" and own == life and count.isdecimal() else 0
    events: list[Event] = list(launch.told[told:])
    if launch.lease.worker:
        events.append(_grant(launch))
        return events, f"w:{launch.lease.worker}:{launch.lease.base}"
    if not events:
        return (), cursor
    return events, f"q:{life}:{len(launch.told)}"


def _grant(launch: PoolLaunch) -> Granted:
    booking = launch.lease.booking
    if booking is None:
        return Granted(launch.lease.granted_at, ((launch.task, 0, launch.lease.node, LOOPBACK, ()),))
    addresses = launch.lease.addresses or (LOOPBACK,) * len(booking.members)
    members = zip(booking.members, booking.gpus, addresses, strict=True)
    places = tuple((member.task, member.node, launch.lease.node, address, gpus) for member, gpus, address in members)
    return Granted(launch.lease.granted_at, places)


def _project_journal(launch: PoolLaunch, lease: LeaseCursor) -> tuple[Sequence[Event], str]:
    begin = max(0, lease.offset - launch.lease.base)
    end = launch.lease.journal.rfind(b"\n") + 1
    events: list[Event] = list(read_events(parse_lines(launch.lease.journal[begin:end]))) if end > begin else []
    if launch.lease.lost is not None:
        events.append(launch.lease.lost)
    return events, f"w:{launch.lease.worker}:{max(lease.offset, launch.lease.base + end)}"
