"""What every adapter is: five batch methods over one cluster, all async and idempotent by token.

Adapters translate. They never decide policy, never touch the store and never know the controller. What a cluster
tells comes back as lifecycle events; what it is to do goes in as launches and orders. Optional abilities are separate
Protocols that the controller looks up once with isinstance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, runtime_checkable

from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobNeed, JobSpec

FORMAT = 1
"""Format number of the plan, the journal and the orders; a reader takes its own and the one before."""


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


@dataclass(frozen=True)
class Accepted:
    """The launch exists on the cluster: `handle` names it from now on, `native_id` is the cluster's own name."""

    token: str
    handle: str
    native_id: str = ""


@dataclass(frozen=True)
class Refusal:
    """The launch was refused, in the cluster's words; a transient one is tried again."""

    token: str
    message: str
    transient: bool = False
    reason: str = "BadConstraints"


@dataclass(frozen=True)
class Order:
    """An order or decision to carry out on a launch: Cancel, Requeue, Restart, Signal, SetTime, Terminate, Kill."""

    token: str
    handle: str
    event: Event
    needs: tuple[Unmet, ...] = ()
    """With SetDependency, what of it is not met; such an order is only given where the adapter is a `Dependencies`."""


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
    """The reports since the cursors that were given; empty when the wait was over first."""

    reports: tuple[Report, ...]
    at: float


@dataclass(frozen=True)
class LogRequest:
    """Which bytes of which log: `attempt` None is the newest; `stream` is output or error."""

    handle: str
    task: str
    node: int = 0
    attempt: int | None = None
    stream: str = "output"
    offset: int = 0
    limit: int = 1 << 20


@dataclass(frozen=True)
class LogPart:
    """Bytes of a log from `offset`; `size` is the log's present size, `gap` the bytes that are lost before it."""

    data: bytes
    offset: int
    size: int
    path: str = ""
    gap: int = 0


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


@dataclass(frozen=True)
class Finding:
    """One line of `span check`: what was tried, whether it works, what was seen and what to do about it."""

    what: str
    works: bool
    seen: str = ""
    remedy: str = ""


@dataclass(frozen=True)
class Foreign:
    """A job that the cluster has and Overspan did not submit: its facts, `spec.adopted` set, and its submit time."""

    spec: JobSpec
    submitted_at: float | None = None


@dataclass(frozen=True)
class Invitation:
    """How a user opens the way to a cluster on a terminal: a command, and what to be told.

    No words: there is nothing to be run. `check` is a command that ends with 0 where the way is open.
    """

    message: str
    words: tuple[str, ...] = ()
    check: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A step of a launch, or one component of it: the task that it ran in, and the numbers of its nodes there.

    `cpus` 0 is all that the task has on them.
    Neither `running` nor an `ended_at`: it was killed, and nobody saw when.
    """

    handle: str
    number: int
    component: int | None
    task: str
    name: str
    command: str
    started_at: float
    ended_at: float | None
    running: bool
    exit_code: int
    signal: int
    cancelled: bool
    ntasks: int
    cpus: int
    nodes: tuple[int, ...]
    layout: str
    host: str
    pid: int


@dataclass(frozen=True)
class ShellRequest:
    """Where a user wants a shell, or a command to be run: at one member of a launch that has its nodes.

    `host` is the name of the member's node. No `command` is a shell. `terminal` tells that a person sits at it.
    """

    handle: str
    task: str
    node: int = 0
    host: str = ""
    command: tuple[str, ...] = ()
    terminal: bool = True


@dataclass(frozen=True)
class Entrance:
    """What to run on the user's own terminal to be there; `environment` is on top of the user's.

    Its exit code is the shell's or the command's. Nothing of the job depends on it.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@runtime_checkable
class Adapter(Protocol):
    """The code for one kind of cluster, opened on one cluster."""

    name: str
    decider: Decider

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Start each launch, or find the one that its token already started; one answer each, in order."""

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """News of the launches in `since` (handle to cursor, '' from the start), at the latest after `timeout` seconds.

        Unreachable when the cluster does not answer: nothing is known then, and nothing has failed.
        """

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out each order; None for done or already done. Ending what has ended is fine."""

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log; NotFound when there is none."""

    async def nodes(self) -> list[Node]:
        """Nodes with capacity, use and state."""

    async def close(self) -> None:
        """Let go of connections and watchers; the work goes on."""


@runtime_checkable
class Deciders(Protocol):
    """Who decides differs from launch to launch, and its handle tells; `Adapter.decider` is that of the others."""

    def decider_of(self, handle: str) -> Decider:
        """Who decides about a launch of this cluster."""


@runtime_checkable
class Check(Protocol):
    """The adapter can say what works on its cluster and what to do about the rest."""

    async def check(self) -> list[Finding]:
        """Try each thing that jobs need there."""


@runtime_checkable
class Login(Protocol):
    """The way to the cluster may ask for passwords and codes, which only a terminal can answer."""

    async def login(self) -> Invitation:
        """What to run on the user's terminal."""


@runtime_checkable
class Exec(Protocol):
    """Users can have a shell beside the work."""

    async def enter(self, request: ShellRequest) -> Entrance:
        """What to run on the user's terminal. Conflict where there is nothing to enter, InvalidRequest, Unreachable."""


@runtime_checkable
class Import(Protocol):
    """The adapter can watch jobs that it did not submit.

    `submit` takes a launch whose spec has `adopted` set as that job, and never makes a new one of it.
    """

    async def find_job(self, native: str) -> Foreign:
        """The facts of a native job. NotFound, InvalidRequest, Denied and Conflict in the cluster's terms."""


@runtime_checkable
class Plan(Protocol):
    """The adapter can print what it would send."""

    def plan(self, job: Job) -> str:
        """The native form of the job (a script, manifests, the local processes), with no effect at all."""


@runtime_checkable
class Admission(Protocol):
    """The adapter can say at once that a job could never run there."""

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal in the cluster's words, or None."""


@runtime_checkable
class Verdict(Protocol):
    """The cluster itself judges each submission: its answer is waited for, and no trial is made before."""

    verdict_seconds: float
    """How long a submitter waits for it at most."""


@runtime_checkable
class Notes(Protocol):
    """The adapter can say what of a job its cluster accepts without effect."""

    def notes(self, job: Job) -> tuple[str, ...]:
        """One sentence for each such thing, for the submitter to read."""


@runtime_checkable
class Arrays(Protocol):
    """The cluster has arrays of its own: elements that are given to it together are one submission there."""

    elements: int
    """How many elements of an array are given to it at once."""
    submissions: int
    """How many submissions, arrays as one, are given to it at once: what it answers is known after all of them."""


@runtime_checkable
class Dependencies(Protocol):
    """The cluster can wait for jobs of its own, so that a dependant is given to it before its needs are met.

    A launch or order with `needs` has its effect only if the cluster surely decides about each of them as Overspan
    would. Where that is not known any more when it arrives, it is refused for a while, with the reason Dependency.
    """

    def waits_for(self, job: Job, needs: Sequence[Unmet]) -> bool:
        """Whether the cluster can wait for all of these; an answer from what is known, the cluster is not asked."""


@runtime_checkable
class Throttle(Protocol):
    """The adapter keeps arrays' throttles itself, so that more elements may be launched than may run.

    Those that wait for their turn are pending with the reason JobArrayTaskLimit and hold up nobody else. The limit is
    that of the newest launch or call, and holds however the daemon or the adapter ends.
    """

    async def set_throttle(self, array: int, limit: int | None) -> None:
        """From now on at most so many elements of the array are started; None is any number. Ends none that runs.

        Heeded from the first start on when it is the first call of all. Raises Unreachable; to be called again then.
        """


@runtime_checkable
class Steps(Protocol):
    """The adapter can tell which steps ran inside its launches."""

    async def steps(self, handles: Sequence[str]) -> list[Step]:
        """The steps of the launches, launch by launch, in their order; none of those that it knows nothing of."""


@runtime_checkable
class Forget(Protocol):
    """The adapter keeps files of ended jobs that may be removed some day."""

    async def forget(self, before: float) -> int:
        """Remove what is left of jobs that ended before that time; gives how many."""


@runtime_checkable
class Release(Protocol):
    """Launches leave objects on the cluster that have to go once their outcome is stored, whoever stored it."""

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Remove what is left of every launch of the installation but those that are named.

        `handles` are watched, the submissions of `tokens` are owed. What this process submits while the call is under
        way stays as well. Raises Unreachable; to be called again then.
        """


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


class Opener(Protocol):
    """The entry point of an adapter package: opens a cluster without contacting it."""

    def __call__(self, config: ClusterConfig) -> Adapter: ...
