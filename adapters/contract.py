"""What every adapter is: five batch methods over one cluster, all async and idempotent by token.

Adapters translate. They never decide policy, never touch the store and never know the controller. What a cluster
tells comes back as lifecycle events; what it is to do goes in as launches and orders. What some can do beyond it is in
abilities.py.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from overspan.bridge.model.errors import TimedOut, Unreachable
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobNeed

FORMAT = 1
"""Format number of the plan, the journal and the orders; a reader takes its own and the one before."""


MOST_WORDS = 1000
"""Characters of a cluster's words that are kept as the reason of a job that waits; columns show Slurm's word alone."""
_GROUP_LIMIT = "AssocGrp"
"""How Slurm's reasons for limits of several jobs begin, which stand for quotas here."""


class Decider(StrEnum):
    """Who decides about the jobs of a cluster while they run."""

    SUPERVISOR = "supervisor"
    """A supervisor beside the work; its journal's events are copied."""
    DAEMON = "daemon"
    """The daemon; the adapter carries out single decisions."""


@dataclass(frozen=True)
class Awaited:
    """A job that another waits for: its facts, and the handle by which the same cluster has it. It is not over."""

    job: Job
    handle: str


@dataclass(frozen=True)
class Unmet:
    """A need that is not met, and the jobs that it is about; without any, only the daemon can wait for it."""

    need: JobNeed
    jobs: tuple[Awaited, ...] = ()


@dataclass(frozen=True)
class Launch:
    """One job to start, with the facts to start from. `token` finds its own earlier effect."""

    token: str
    job: Job
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the daemon's own for every task (its address, the job's token file)."""
    throttle: int | None = None
    """For an element, how many of its array may run at once; heeded where the adapter is a `Throttle`."""
    needs: tuple[Unmet, ...] = field(default=(), kw_only=True)
    """What the job still waits for; empty unless the adapter is a `Dependencies`."""
    wanted: bool = field(default=True, kw_only=True)
    """False: its job is cancelled. What an earlier call has made of it is found; else it is refused, as `NOT_HERE`.

    Nothing is made then. Whatever is found is of a held job, and does not start before the cancel comes.
    """


@dataclass(frozen=True)
class Accepted:
    """The launch exists on the cluster: `handle` names it from now on, `native_id` is the cluster's own name."""

    token: str
    handle: str
    native_id: str = ""


@dataclass(frozen=True)
class Refusal:
    """The launch was refused, in the cluster's words; a transient one is tried again.

    `remedy` is what fixes it, where the adapter knows better than that another size or partition may do.
    """

    token: str
    message: str
    transient: bool = False
    reason: str = "BadConstraints"
    remedy: str = ""

    @property
    def text(self) -> str:
        """The words with what fixes it, for who is told of nothing else."""
        return f"{self.message}; {self.remedy}" if self.remedy else self.message

    @property
    def waiting_reason(self) -> str:
        """Why the job waits: Slurm's reason, with the words where that alone would not tell of a refusal."""
        words = self.message.partition("\n")[0][:MOST_WORDS]
        worded = self.reason == "Resources" or self.reason.startswith(_GROUP_LIMIT)
        return f"{self.reason}: {words}" if worded and words else self.reason


NOT_HERE = "it is cancelled, and nothing of it is here"
"""What is said of a launch that is not wanted any more."""


class SomeUnanswered(Unreachable):
    """Of some calls of a batch nothing is known yet; `answers` are those of the others, by token.

    What is left is owed, and made again in a moment. For adapters whose calls go different ways.
    """

    def __init__(self, answers: Mapping[str, Any]) -> None:
        super().__init__("some calls have no answer yet")
        self.answers = answers


class Unsent(Unreachable):
    """The cluster does not answer, and nothing of the submissions has been sent: it knows of none of them."""


@asynccontextmanager
async def before_sending() -> AsyncIterator[None]:
    """What is asked before anything is sent: silence is `Unsent` there."""
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
    """With SetDependency, what of it is not met; such an order is only given where the adapter is a `Dependencies`."""
    again: bool = False
    """Whether it may have been carried out before, by a daemon that did not hear of that."""


@dataclass(frozen=True)
class Report:
    """News of one launch, oldest first. `cursor` stands behind the last event and is stored with their effect."""

    handle: str
    events: tuple[Event, ...]
    cursor: str
    gone: bool = False
    """The cluster has no trace of the launch and never will have."""
    native_id: str = ""
    """What the cluster calls the launch from now on, where that has changed: an element gets its own name late."""


@dataclass(frozen=True)
class Observation:
    """The reports since the cursors that were given; empty when the wait was over first.

    `trouble` says why a part of the cluster does not answer, while another part has reports. `gap` is a sentence about
    what cannot be known of some launches, while all others are seen.
    """

    reports: tuple[Report, ...]
    at: float
    trouble: str = ""
    gap: str = ""


@dataclass(frozen=True)
class LogRequest:
    """Which bytes of which log: `attempt` None is the newest; `stream` is output or error.

    `begun` is the newest attempt that the daemon knows to have started: no earlier one's bytes are given in its place.
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
    where nobody noted that.
    """

    data: bytes
    offset: int
    size: int
    path: str = ""
    gap: int = 0
    marks: tuple[tuple[float, int], ...] | None = None


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
    decider: Decider

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Start each launch, or find the one that its token already started; one answer each, in order.

        When it answers or raises, nothing of the call is under way any more.
        """

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """News of the launches in `since` (handle to cursor, '' from the start), at the latest after `timeout` seconds.

        Unreachable when the cluster does not answer: nothing is known then, and nothing has failed. The first answer
        after that is told at once, with news or without.
        """

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each order; None for done or already done. Ending what has ended is fine."""

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log; NotFound when there is none."""

    async def nodes(self) -> list[Node]:
        """Nodes with capacity, use and state."""

    async def close(self) -> None:
        """Let go of connections and watchers; the work goes on."""


@dataclass(frozen=True)
class ClusterConfig:
    """One cluster of the configuration file: its name, kind and the kind's own settings."""

    name: str
    kind: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    root: str = ""
    """Directory for run directories on that cluster."""
    state: str = ""
    """Directory on this machine for the adapter's own files; made by whoever writes there first."""
    personal: bool = False
    """The daemon serves several users: what is opened has to be `Personal`."""


class Opener(Protocol):
    """The entry point of an adapter package: opens a cluster without contacting it."""

    def __call__(self, config: ClusterConfig) -> Adapter: ...
