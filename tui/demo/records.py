"""What the simulated lab keeps: what was asked for, as data, and what has become of it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from overspan.tui.demo.machines import GIB

ME = "ana"
"""The person in the lab that the viewer is."""


class Life(NamedTuple):
    """One run of a task: how long it takes, how it ends, and what it prints.

    `end` is a cause of `ENDS`; `exit_code` and `signal` go with it.
    """

    seconds: float = 3600.0
    end: str = "success"
    exit_code: int = 0
    signal: int = 0
    detail: str = ""


class TaskWish(NamedTuple):
    """A task as it was asked for; CPUs, memory (MiB) and GPUs are those of each node."""

    name: str
    nodes: int = 1
    cpus: int = 8
    memory: int = 64 * GIB
    gpus: int = 0
    primary: bool = True
    output: str = "training"
    """Which kind of log it writes (`outputs.KINDS`)."""
    lives: tuple[Life, ...] = (Life(),)
    """A run for each attempt; all but the last are followed by another."""
    ready_after: float = 0.0
    """Seconds from its start to its readiness."""
    waits_for: str = ""
    """The task that has to be ready before it starts."""
    most: int = 0
    """Members that an elastic task has at most; 0: it is none."""


class JobWish(NamedTuple):
    """A submission. `array` has the indices of its elements; `blocked` is a reason that holds for `blocked_for`."""

    name: str
    user: str
    cluster: str
    partition: str
    tasks: tuple[TaskWish, ...]
    limit: int | None = 4 * 3600
    group: bool = False
    array: tuple[int, ...] = ()
    throttle: int | None = None
    account: str = ""
    qos: str = "normal"
    priority: int = 1000
    held: bool = False
    begin_in: float | None = None
    after: int | None = None
    """The job that it depends on (afterok)."""
    blocked: str = ""
    blocked_for: float = 0.0
    comment: str = ""
    file: str = "train.sh"
    text: str = ""


class Moment(NamedTuple):
    """A line of a timeline, as `Transition` has it."""

    seq: int
    at: float
    task: str
    start: str
    end: str
    reason: str
    cause: str
    text: str


@dataclass
class RunOfNode:
    """One node of an attempt."""

    index: int
    node: str
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int = 0
    signal: int = 0
    detail: str = ""


@dataclass
class RunOfTask:
    """An attempt."""

    number: int
    launched_at: float
    nodes: list[RunOfNode]
    life: Life
    state: str = "CONFIGURING"
    started_at: float | None = None
    ended_at: float | None = None
    cause: str | None = None
    detail: str = ""
    exit_code: int = 0
    signal: int = 0
    suspended: float = 0.0

    @property
    def live(self) -> bool:
        """Whether it holds machines."""
        return self.ended_at is None


@dataclass
class DemoTask:
    """A task and its attempts."""

    wish: TaskWish
    state: str = "PENDING"
    reason: str = "None"
    attempts: list[RunOfTask] = field(default_factory=list)
    ready_at: float | None = None
    ended_at: float | None = None
    restarts: int = 0
    limit: int | None = None
    members: list[DemoJob] = field(default_factory=list)
    """The further members of an elastic task that there are, or were."""

    @property
    def staying(self) -> list[DemoJob]:
        """Its further members that are not about to end, by number."""
        live = [member for member in self.members if not member.over and member.state != "COMPLETING"]
        return sorted(live, key=lambda member: member.number)

    @property
    def current(self) -> RunOfTask | None:
        """The newest attempt."""
        return self.attempts[-1] if self.attempts else None


@dataclass
class DemoJob:
    """A job, an array as a whole, or an element of one."""

    id: int
    wish: JobWish
    submitted_at: float
    tasks: list[DemoTask]
    native_id: str = ""
    state: str = "PENDING"
    reason: str = "None"
    name: str = ""
    comment: str = ""
    partition: str = ""
    priority: int = 0
    nice: int = 0
    held: bool = False
    begin: float | None = None
    after: int | None = None
    blocked_until: float = 0.0
    expected_start: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    suspended_at: float | None = None
    suspended: float = 0.0
    exit_code: int = 0
    signal: int = 0
    restarts: int = 0
    ended_by: str = ""
    schedule: int = 0
    group: DemoJob | None = None
    """The group whose further member it is, `task`'s, with this number."""
    task: str = ""
    number: int = 0
    array_id: int | None = None
    array_index: int | None = None
    waiting: list[int] = field(default_factory=list)
    """Of an array: the elements that are no jobs yet."""
    cancelled: list[int] = field(default_factory=list)
    throttle: int | None = None
    timeline: list[Moment] = field(default_factory=list)
    epoch: int = 0
    """Grows with each requeue and restart: what was planned for an earlier one does not happen."""

    @property
    def is_array(self) -> bool:
        """Whether it stands for an array as a whole."""
        return self.array_id == self.id

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.ended_at is not None

    @property
    def holds(self) -> bool:
        """Whether it has machines."""
        return not self.is_array and self.state in ("RUNNING", "CONFIGURING", "COMPLETING", "SUSPENDED")


@dataclass
class DemoEvaluation:
    """An evaluation of a checkpoint: its job once it is submitted, and the score that this will have."""

    id: int
    step: int
    run: int
    ready_at: float
    score: float
    job: DemoJob | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended."""
        return self.job is not None and self.job.over

    @property
    def result(self) -> float | None:
        """Its score, once it has one."""
        return self.score if self.job is not None and self.job.state == "COMPLETED" else None


@dataclass
class DemoWatch:
    """What is evaluated of a job's checkpoints, which are written every so many steps."""

    name: str
    job: DemoJob
    every: int
    lowest: bool = False
    max_parallel: int = 2
    evaluations: list[DemoEvaluation] = field(default_factory=list)

    @property
    def closed(self) -> bool:
        """Whether nothing more comes."""
        return self.job.over and all(each.over for each in self.evaluations)


class End(NamedTuple):
    """What a cause makes of a task: its state, and the reason as squeue shows it."""

    state: str
    reason: str


ENDS = {
    "success": End("COMPLETED", "None"),
    "exit": End("FAILED", "NonZeroExitCode"),
    "signal": End("FAILED", "RaisedSignal"),
    "memory": End("OUT_OF_MEMORY", "OutOfMemory"),
    "node": End("NODE_FAIL", "NodeDown"),
    "time": End("TIMEOUT", "TimeLimit"),
    "preemption": End("PREEMPTED", "Preempted"),
    "launch": End("FAILED", "JobLaunchFailure"),
    "cancel": End("CANCELLED", "None"),
    "primaries_done": End("COMPLETED", "PrimariesDone"),
    "primary_failed": End("CANCELLED", "PrimaryFailed"),
    "restart": End("CANCELLED", "Restarted"),
    "requeue": End("CANCELLED", "Requeued"),
    "scaled_down": End("COMPLETED", "ScaledDown"),
}
"""The causes of the daemon (`bridge/model/causes.py`) that happen in the lab."""
