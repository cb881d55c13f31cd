"""Facts of a job, its tasks and their attempts.

Immutable; `lifecycle.reduction.reduce` makes the next value from an event. Times are seconds since the epoch.
Nothing here is derived from the spec unless an operator may change it later.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Optional

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.elastic import Peer
from overspan.bridge.model.ids import IndexRange
from overspan.bridge.model.records import NamedTuple, dataclass, field, replace
from overspan.bridge.model.spec import Dependency, DependencyKind, Form, JobSpec, TaskSpec
from overspan.bridge.model.stages import list_turns
from overspan.bridge.model.states import LIVE, State

_NO_LABELS: Mapping[str, str] = {}


@dataclass(frozen=True)
class Placement:
    """Where one member runs: address and host as its peers reach it, and the devices it was given.

    `node` is the cluster's own name of the machine. GPUs are device indices on that machine.
    """

    task: str
    index: int
    node: str = ""
    address: str = ""
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True)
class NodeRun:
    """One node of an attempt; `run` counts its own restarts where `restart: node` allows them."""

    index: int
    run: int = 0
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    exit_code: int = 0
    signal: int = 0
    cause: Optional[Cause] = None
    detail: str = ""
    next_start: Optional[float] = None
    """When this node alone is started again (`restart: node`)."""
    node: str = ""
    """Where it ran, from the attempt's end on: the placements are those of the next one then."""
    storage: str = ""
    """How it sees storage that may be read through the store: `mounted`, or `copied: WHY`; empty where not told."""

    @property
    def live(self) -> bool:
        """Whether a process may still be there."""
        return self.ended_at is None

    @property
    def failed(self) -> bool:
        """Whether it ended, not as it should, and will not start again by itself."""
        return self.ended_at is not None and self.cause is not Cause.SUCCESS and self.next_start is None


@dataclass(frozen=True)
class Stop:
    """The decided end of an attempt: TERM was sent at `at`, KILL is due at `kill_at`."""

    cause: Cause
    at: float
    kill_at: float
    killed_at: Optional[float] = None


@dataclass(frozen=True)
class Flush:
    """Data of an attempt whose programs have ended is on its way to its stores, at most until `until`.

    `left` is the bytes that are not there yet, None before the first report, and `trouble` what keeps them from it.
    """

    at: float
    until: float
    left: Optional[int] = None
    trouble: str = ""
    sent: bool = False
    """Whether the end of the flush confirmed that all is there; `left` may be 0 before more is written."""


@dataclass(frozen=True)
class Attempt:
    """One run of a task, all its nodes together."""

    number: int
    state: State
    launched_at: float
    nodes: tuple[NodeRun, ...]
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    stop: Optional[Stop] = None
    warned_at: Optional[float] = None
    cause: Optional[Cause] = None
    exit_code: int = 0
    signal: int = 0
    detail: str = ""
    suspended: float = 0.0
    """Seconds for which it was suspended; they do not count against its wall time."""
    flush: Optional[Flush] = None
    """Set when its programs have ended and its data has not been sent yet; it lives until that has."""

    @property
    def live(self) -> bool:
        """Whether any node may still have processes, or data to send."""
        return self.ended_at is None

    @property
    def flushing(self) -> bool:
        """Whether its programs have ended, and data is on its way."""
        return self.flush is not None and self.ended_at is None

    @property
    def begun_at(self) -> Optional[float]:
        """When its wall time began: with its start, until then with that of the first node; None before any."""
        if self.started_at is not None:
            return self.started_at
        return min((node.started_at for node in self.nodes if node.started_at is not None), default=None)


class Probe(NamedTuple):
    """What the readiness probe of an attempt has met so far: how many tries, and what came of the last one."""

    attempt: int
    tries: int
    answer: str = ""


@dataclass(frozen=True)
class Task:
    """A task's facts. `attempts` holds every attempt; the last is the current one."""

    name: str
    state: State = State.PENDING
    reason: str = "None"
    attempts: tuple[Attempt, ...] = ()
    errors: int = 0
    recoveries: int = 0
    restarts: int = 0
    next_start: Optional[float] = None
    """When the next attempt is due after a backoff."""
    ready_at: Optional[float] = None
    probe: Optional[Probe] = None
    """The last answer of a readiness probe that has not succeeded."""
    noticed_at: Optional[float] = None
    ended_at: Optional[float] = None
    wanted: Optional[Cause] = None
    """Why the current attempt is to be ended although the job goes on: cancel, restart, group_restart."""
    time: Optional[int] = None
    """The wall time in force where an operator changed it, 0 for no limit; None: the spec's holds."""
    size: Optional[int] = None
    """How many members an elastic task is to have (`span scale`); None: what its spec wants, and more with room."""
    sized_at: Optional[float] = None
    """When `span scale` last set its size: members that had ended by then are wanted again."""
    unflushed: bool = False
    """Whether an operator cancelled it without waiting for its data."""

    @property
    def current(self) -> Optional[Attempt]:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None

    @property
    def live(self) -> bool:
        """Whether its newest attempt may have processes."""
        return bool(self.attempts) and self.attempts[-1].live

    @property
    def flushing(self) -> bool:
        """Whether only data of its newest attempt is still on its way."""
        return bool(self.attempts) and self.attempts[-1].flushing

    @property
    def over(self) -> bool:
        """Whether the task has ended for good."""
        return self.state.terminal


@dataclass(frozen=True)
class Ending:
    """The decided end of the whole job: why, since when, and the state and reason it will have."""

    cause: Cause
    at: float
    state: State
    reason: str = "None"
    by: str = ""
    hold_until: Optional[float] = None
    """Until when a failed job's resources are kept for a look (`hold_on_failure`)."""
    at_once: bool = False
    """Whether termination delays no longer count."""
    grace: Optional[int] = None
    """Seconds between TERM and KILL; None: each task's own."""
    message: str = ""
    """What the cluster said that refused the job."""

    @property
    def requeues(self) -> bool:
        """Whether the job goes back into the queue then."""
        return self.cause is Cause.REQUEUE or self.state is State.PENDING


@dataclass(frozen=True)
class Array:
    """What an array keeps of its elements: those that are no jobs of their own yet.

    An element becomes a job, with an id of its own, shortly before it starts. `cancelled` never will.
    """

    waiting: tuple[IndexRange, ...]
    throttle: Optional[int] = None
    cancelled: tuple[IndexRange, ...] = ()


@dataclass(frozen=True)
class Element:
    """Which array a job is an element of, and which index it has."""

    array: int
    index: int

    @property
    def ref(self) -> str:
        """As users write it: `42_3`."""
        return f"{self.array}_{self.index}"


class Resolution(NamedTuple):
    """A need of the dependency, by its place, that is known to be met since `at`; None: it never can be."""

    place: int
    at: Optional[float]


class Departure(NamedTuple):
    """A cluster of the job's list that has not started it, and why; `launch` is the one that it had, if any.

    `raced`: it was one of several at the time, and may have the job again.
    """

    at: float
    cluster: str
    text: str
    refused: bool = False
    launch: Optional[int] = None
    raced: bool = False
    candidate: Optional[int] = None
    """Which of the spec's `places` it was."""


@dataclass(frozen=True)
class Bid:
    """A further launch of a waiting job, on another cluster: it waits there at a start gate, and may only wait.

    `launch` is its number, `at` the time of the offer. Handle, native id and cursor are those of the cluster; without
    a handle it is not known to be there.
    """

    cluster: str
    launch: int
    at: float
    handle: str = ""
    native_id: str = ""
    cursor: str = ""
    reason: str = "None"
    candidate: int = 0
    """Which of the spec's `places` it is for."""


@dataclass(frozen=True)
class Stage:
    """What the present launch carries of a job whose tasks take turns: some of its tasks.

    `launch` is the number of the first launch that carried them, `restarts` how often the job had been put back before.
    The others are set where a launch is carried alone. `followed`: primary tasks follow in a later stage, so the
    success of its own does not end the job, and it ends when all its tasks have. `later`: the names, kinds and needs of
    the tasks of later stages, by which the ends of its own decide the job's. `deferred`: those of its own tasks that
    start after the end of others of them.
    """

    tasks: tuple[str, ...]
    launch: int = 0
    restarts: int = 0
    followed: bool = False
    later: tuple[TaskSpec, ...] = ()
    deferred: tuple[str, ...] = ()


class EndedStage(NamedTuple):
    """A stage that has ended: its last launch, and how its cluster names that. Its logs are read by the handle."""

    tasks: tuple[str, ...]
    launch: int
    cluster: str = ""
    handle: str = ""
    native_id: str = ""


class FormerCluster(NamedTuple):
    """A cluster where attempts of the job ran before it went to another one: what they could not send is there.

    `handle` names its newest launch there, `candidate` says which of the spec's `places` it was, and `attempts` how
    many each task had when it left, in the order of the tasks.
    """

    cluster: str
    handle: str
    candidate: int
    attempts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Job:
    """Everything that is known of one submission."""

    id: int
    spec: JobSpec
    tasks: tuple[Task, ...]
    state: State = State.PENDING
    reason: str = "None"
    held: bool = False
    priority: Optional[int] = None
    begin: Optional[float] = None
    submitted_at: float = 0.0
    granted_at: Optional[float] = None
    started_at: Optional[float] = None
    ended_at: Optional[float] = None
    ending: Optional[Ending] = None
    placements: tuple[Placement, ...] = ()
    launch: int = 0
    """Number of the present submission to the cluster; also SLURM_RESTART_COUNT."""
    requeue_held: bool = False
    exit_code: int = 0
    signal: int = 0
    late: int = 0
    """Reports that came late, twice or made no sense; they changed nothing."""
    version: int = 0
    labels: Mapping[str, str] = field(default_factory=lambda: _NO_LABELS)
    nice: int = 0
    dependency: Dependency = Dependency()
    """What the job waits for outside of itself; an operator may change it."""
    resolved: tuple[Resolution, ...] = ()
    expected_start: Optional[float] = None
    """When the cluster thinks that the waiting job starts at the latest, where it says so."""
    partition: str = ""
    """The partition that the present launch is in, in its cluster's own words; empty where that has not told it."""
    array: Optional[Array] = None
    """Set for an array as a whole; its elements are jobs of their own, of the same spec."""
    element: Optional[Element] = None
    suspended_at: Optional[float] = None
    """Since when it is suspended; None while it is not."""
    suspended: float = 0.0
    """Seconds for which the present launch was suspended before; they do not count as run time."""
    cluster: str = ""
    """Which of several clusters has the job now; empty where there is no choice."""
    candidate: int = 0
    """Which of the spec's `places` that is; the spec's tasks ask for what it says."""
    offered_at: Optional[float] = None
    """Since when it waits for that one."""
    passed: tuple[Departure, ...] = ()
    """The clusters that it was not started by, oldest first."""
    former: tuple[FormerCluster, ...] = ()
    """Those where attempts of it wrote to folders of object stores, oldest first; the present one is not among them."""
    patience: Optional[float] = None
    """Seconds after which it goes on where its file does not say: the present cluster's own choice."""
    racers: tuple[str, ...] = ()
    """The clusters that it may wait on at the same time (`race`); empty where it does not race."""
    bids: tuple[Bid, ...] = ()
    """Its launches on the other racers, while it waits."""
    newest: int = 0
    """The highest number that a launch or a bid of it had."""
    unstarted: int = 0
    """How many launch numbers up to the present one put nothing back: bids that never started, and later stages."""
    gate_timeouts: int = 0
    """How many launches in a row gave up at their start gates (`never_started`); a grant ends the row."""
    backs_off: bool = False
    """Whether `begin` is the end of a back-off, and not a calendar time that a user named."""
    stage: Optional[Stage] = None
    """Which tasks the present launch carries, where they take turns; None: all of them."""
    ended_stages: tuple[EndedStage, ...] = ()
    """The stages before it, oldest first."""
    peers: tuple[Peer, ...] = ()
    """All members of its group, where that has an elastic task: those of other launches too."""
    generation: int = 0
    """Which list of members that is; each later one has a higher number."""

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self.state.terminal

    @property
    def restarts(self) -> int:
        """How often it was put back after it had resources; a launch that only waited on another cluster is none.

        A batch script that starts again on the nodes that it has counts too: Slurm would have requeued it.
        """
        count = self.launch - self.unstarted - sum(departure.launch is not None for departure in self.passed)
        script = self.tasks[0].current if self.spec.tasks[0].form is Form.BATCH else None
        return count if script is None else max(count, script.number)

    @property
    def relaunches(self) -> int:
        """How many launches before the present one carried the same tasks."""
        return self.launch - (0 if self.stage is None else self.stage.launch)

    @property
    def next_launch(self) -> int:
        """The number of its next launch or bid; none is given twice."""
        return max(self.launch, self.newest) + 1

    @property
    def lasting(self) -> tuple[TaskSpec, ...]:
        """The tasks by whose ends it ends: the primary ones, and in a stage that primary ones follow all."""
        followed = self.stage is not None and self.stage.followed
        return tuple(task for task in self.spec.tasks if task.primary or followed)

    @property
    def live(self) -> bool:
        """Whether the job holds resources."""
        return self.state in LIVE

    def task(self, name: str) -> Task:
        """The facts of the task of that name; KeyError when there is none."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)

    def spec_of(self, name: str) -> TaskSpec:
        """The spec of the task of that name; KeyError when there is none."""
        return self.spec.task(name)

    def time_of(self, name: str) -> Optional[int]:
        """The time limit in effect, in seconds: that of the last order, else the spec's. None without a limit."""
        changed = self.task(name).time
        return (self.spec_of(name).time if changed is None else changed) or None


def list_stages(spec: JobSpec) -> tuple[tuple[str, ...], ...]:
    """The names of the tasks of each stage, in turn; empty for a job that is launched as a whole."""
    return list_turns(spec.tasks, spec.start)


def first_stage(spec: JobSpec, launch: int = 0) -> Optional[Stage]:
    """The stage that a job begins with, as the launch of that number; None where its tasks do not take turns."""
    stages = list_stages(spec)
    return Stage(stages[0], launch) if stages else None


@lru_cache(maxsize=256)
def make_tasks(names: tuple[str, ...]) -> tuple[Task, ...]:
    """The tasks of a job to which nothing has happened: 100,000 that wait share them."""
    return tuple(map(Task, names))


def new_job(job_id: int, spec: JobSpec, now: float) -> Job:
    """The facts of a job at the moment of its submission."""
    return Job(
        id=job_id,
        spec=spec,
        tasks=make_tasks(tuple(task.name for task in spec.tasks)),
        held=spec.hold,
        reason="JobHeldUser" if spec.hold else "None",
        priority=spec.priority,
        begin=spec.begin,
        submitted_at=now,
        nice=spec.nice,
        dependency=spec.dependency,
        array=None if spec.array is None else Array(spec.array.ranges, spec.array.throttle),
        stage=first_stage(spec),
        peers=() if spec.member is None else spec.member.peers,
    )


def new_element(array: Job, index: int, job_id: int) -> Job:
    """An element of an array as a job of its own, with what operators have changed of the array.

    One that becomes a job before its turn, for an order about it alone, waits for all that the array waits for.
    """
    dependency, resolved = _inherit(array, index)
    return Job(
        id=job_id,
        spec=array.spec,
        tasks=tuple(Task(name=task.name, time=task.time) for task in array.tasks),
        reason=array.reason if array.held else "None",
        held=array.held,
        priority=array.priority,
        begin=array.begin,
        submitted_at=array.submitted_at,
        labels=array.labels,
        nice=array.nice,
        dependency=dependency,
        resolved=resolved,
        element=Element(array.id, index),
    )


def _inherit(array: Job, index: int) -> tuple[Dependency, tuple[Resolution, ...]]:
    """What one element waits for: its counterparts in other arrays (Slurm's aftercorr), and what is not met yet."""
    needs, any_is_enough = array.dependency.needs, array.dependency.any
    paired = {
        place: replace(need, element=index)
        for place, need in enumerate(needs)
        if need.kind is DependencyKind.AFTERCORR and need.element is None
    }
    met = {entry.place for entry in array.resolved if entry.at is not None} - paired.keys()
    if len(met) + len(paired) == len(needs) or (any_is_enough and met):
        return Dependency(tuple(paired.values()), any_is_enough and bool(paired)), ()
    resolved = tuple(entry for entry in array.resolved if entry.place not in paired)
    return Dependency(tuple(paired.get(place, need) for place, need in enumerate(needs)), any_is_enough), resolved
