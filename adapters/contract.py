"""The contract of an adapter: five batch methods over one cluster, all async and idempotent by token.

Adapters translate. They never decide policy, never touch the store and never know the controller. Launches and orders
go in; lifecycle events come out. What differs between clusters is stated in `traits`; optional methods are in
abilities.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, runtime_checkable

from overspan.bridge.model.deciders import Decider as Decider
from overspan.bridge.model.errors import TimedOut, Unreachable
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobNeed
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.validation.positions import NOWHERE, Positions

if TYPE_CHECKING:
    from overspan.adapters.traits import Traits

FORMAT = 1
"""Format number of the plan, the journal and the orders; a reader takes its own and the one before."""


MOST_WORDS = 1000
"""Characters of a cluster's message that are kept as a pending job's reason; columns show Slurm's word alone."""
_GROUP_LIMIT = "AssocGrp"
"""Prefix of Slurm's reasons for limits that several jobs share; quotas use them too."""


@dataclass(frozen=True)
class Awaited:
    """A live job that another one waits for: its facts, and its handle on the same cluster."""

    job: Job
    handle: str


@dataclass(frozen=True)
class Unmet:
    """An unmet dependency and the jobs that it names. Without jobs, only the daemon can wait for it."""

    need: JobNeed
    jobs: tuple[Awaited, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One job to start, with the facts to start from. `token` is an idempotency key: it finds an earlier try."""

    token: str
    job: Job
    """Held where a hold came while the submission was in doubt: it may not start before its release."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables that the daemon adds for every task (its address, the job's token file)."""
    throttle: int | None = None
    """For an array element, how many of its array may run at once. Only a `Throttle` adapter reads it."""
    needs: tuple[Unmet, ...] = field(default=(), kw_only=True)
    """What the job still waits for; empty unless the adapter states `waits_for`."""
    access: str = field(default="", kw_only=True)
    """How the job's own commands reach the daemon, with its token (`JobAccess`). A secret; empty where they cannot."""
    wanted: bool = field(default=True, kw_only=True)
    """False where the job was cancelled: find what an earlier call created, else refuse with `NOT_HERE`.

    Such a call creates nothing. What it finds belongs to a held job, and cannot start before the cancel arrives.
    """


@dataclass(frozen=True)
class Accepted:
    """The launch exists on the cluster: `handle` names it from now on, `native_id` is the cluster's own name for it.

    `report` is the launch's first one, where there is something to tell already: it is stored with the acceptance.
    """

    token: str
    handle: str
    native_id: str = ""
    report: Report | None = None


@dataclass(frozen=True)
class Refusal:
    """The launch was refused, in the cluster's words. A transient refusal is retried.

    `remedy` is the fix, where the adapter knows a better one than another size or partition.
    """

    token: str
    message: str
    transient: bool = False
    reason: str = "BadConstraints"
    remedy: str = ""

    @property
    def text(self) -> str:
        """Message and remedy in one line."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    @property
    def waiting_reason(self) -> str:
        """The pending job's reason: Slurm's word, with the message where the word alone would not show a refusal."""
        words = self.message.partition("\n")[0][:MOST_WORDS]
        worded = self.reason in ("Resources", "Cleaning") or self.reason.startswith(_GROUP_LIMIT)
        return f"{self.reason}: {words}" if worded and words else self.reason


NOT_HERE = "it is cancelled, and nothing of it is here"
"""The message of a refusal for a launch that is no longer wanted and was never created."""


class SomeUnanswered(Unreachable):
    """Some calls of a batch have no answer yet; `answers` are those of the others, by token.

    The unanswered calls stay in the outbox and are retried. For adapters whose calls take different routes.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__("some calls have no answer yet")
        self.answers = answers


class Unsent(Unreachable):
    """The cluster does not answer, and no submission was sent: none of them is in doubt."""


@asynccontextmanager
async def before_sending() -> AsyncIterator[None]:
    """Guard the questions that precede the first send: there, Unreachable and TimedOut become `Unsent`."""
    try:
        yield
    except (Unreachable, TimedOut) as error:
        raise Unsent(error.message, remedy=error.remedy, place=error.place) from None


@dataclass(frozen=True)
class Order:
    """An order or decision to carry out on a launch: Cancel, Requeue, Restart, Signal, SetTime, Terminate, Kill."""

    token: str
    handle: str
    event: Event
    needs: tuple[Unmet, ...] = ()
    """The unmet dependencies of a SetDependency, which only an adapter that states `waits_for` gets."""
    again: bool = False
    """Whether it is in doubt: an earlier daemon may have had it carried out without learning of that."""


@dataclass(frozen=True)
class Report:
    """New events of one launch, oldest first. `cursor` points behind the last one and is stored with their effect."""

    handle: str
    events: tuple[Event, ...]
    cursor: str
    gone: bool = False
    """The cluster has no trace of the launch and never will have."""
    native_id: str = ""
    """The cluster's new name for the launch, where that has changed: an array element gets its own name late."""


@dataclass(frozen=True)
class Observation:
    """The reports since the given cursors; empty after a timeout.

    `trouble` says why a part of the cluster does not answer while another part has reports. `gap` is a sentence about
    what cannot be known of some launches while all others are visible.
    """

    reports: tuple[Report, ...]
    at: float
    trouble: str = ""
    gap: str = ""


@dataclass(frozen=True)
class LogRequest:
    """Which bytes of which log: `attempt` None is the newest; `stream` is output or error.

    `begun` is the newest attempt that the daemon knows to have started. The bytes of an earlier one never stand in for
    it.
    """

    handle: str
    task: str
    node: int = 0
    attempt: int | None = None
    stream: str = "output"
    offset: int = 0
    limit: int = 1 << 20
    times: bool = False
    begun: int = 0


@dataclass(frozen=True)
class LogPart:
    """Bytes of a log from `offset`; `size` is the log's present size, `gap` the bytes that are lost before it.

    `marks`, where `times` were asked for: (time, size) pairs, rising, of when the log had at least so many bytes; None
    where no times were recorded. `partial`: the cluster has not shown all that was printed, even if the job has ended.
    """

    data: bytes
    offset: int
    size: int
    path: str = ""
    gap: int = 0
    marks: tuple[tuple[float, int], ...] | None = None
    partial: bool = False


@dataclass(frozen=True)
class Node:
    """A node as sinfo shows it. Memory in MiB; `state` in sinfo's words (idle, mixed, allocated, down, drained)."""

    name: str
    partition: str
    state: str
    cpus: float
    cpus_used: float
    memory: int
    memory_used: int
    gpus: int = 0
    gpus_used: float = 0
    gpu_kind: str = ""
    reason: str = ""
    default: bool = True
    time_limit: int | None = None


@runtime_checkable
class Adapter(Protocol):
    """The code for one kind of cluster, opened on one cluster."""

    name: str
    """The cluster's name in the configuration."""

    @property
    def traits(self) -> Traits:
        """What the daemon has to know of the cluster before it asks anything."""

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Start each launch, or find the one that its token already started; one answer each, in order.

        Nothing of the call may continue in the background after it answers or raises.
        """

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """Long poll: events of the launches in `since` (handle to cursor, '' from the start), within `timeout` seconds.

        Raises Unreachable when the cluster does not answer: nothing is known then, and nothing has failed. The first
        answer after that returns at once, with events or without.
        """

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each order; None for done or already done. Ending what has ended is fine."""

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log; NotFound when there is none."""

    async def nodes(self) -> list[Node]:
        """Nodes with capacity, use and state."""

    async def close(self) -> None:
        """Let go of connections and watchers; the work goes on."""


class SharedFolder(NamedTuple):
    """A folder as a cluster has it; `volume` is what the cluster's own settings say of it, None for nothing."""

    path: str
    volume: Any = None
    here: bool = False
    """Whether this machine has it too."""


@dataclass(frozen=True)
class ClusterConfig:
    """One cluster of the configuration file: its name, kind and the kind's own settings."""

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    root: str = ""
    """Directory for run directories on that cluster."""
    state: str = ""
    """Directory on this machine for the adapter's own files, created with the first write."""
    personal: bool = False
    """The daemon serves several users: the adapter has to state `as_user`."""
    positions: Positions = NOWHERE
    """Where each setting stands in the configuration files."""
    list_waiting: Callable[[], Sequence[Launch]] = tuple
    """The launches that the cluster has accepted, and of which the store has no grant, with their tokens.

    For an adapter whose queue is in memory: it asks when it opens, before it answers its first call.
    """
    list_cursors: Callable[[], Mapping[str, str]] = dict
    """The stored cursor of each launch there that is not over, by its handle."""
    find_launch: Callable[[str], Launch | None] = lambda handle: None
    """The launch of a handle, with the facts that the store has of it now; None for one that is over or unknown."""
    paths: Mapping[str, SharedFolder] = field(default_factory=dict)
    """Folders that the cluster shares with others, by the name that all of them use."""
    stores: Mapping[str, StoreAccess] = field(default_factory=dict)
    """Object stores by name, with their credentials, which an adapter keeps where only the job's user reads them."""


class Opener(Protocol):
    """The entry point of an adapter package: opens a cluster without contacting it."""

    def __call__(self, config: ClusterConfig) -> Adapter: ...
