"""Specifications: a job and its tasks as the user asked for them, read from any form of input.

Durations are whole seconds, memory is MiB, paths are absolute. What an operator changes later (limits,
priority) is a fact of the job; sizes change in the spec, and only while no cluster has the job.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, Optional

from overspan.bridge.model.elastic import Elastic, MemberOf
from overspan.bridge.model.errors import Place
from overspan.bridge.model.evaluations import EvaluationOf, EvaluationSpec, StopWhen
from overspan.bridge.model.ids import ArraySpec
from overspan.bridge.model.pools import WorkerOf
from overspan.bridge.model.records import dataclass, field, replace
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.model.storage import FlushPolicy, StorageMount


class Form(str, Enum):
    """How a task's text runs."""

    RUN = "run"
    """SkyPilot's `run`: the text on every node, after `setup`."""
    BATCH = "batch"
    """Slurm's batch script: the text once, on the task's first node."""


class OnFailure(str, Enum):
    """What the final failure of an auxiliary task means."""

    IGNORE = "ignore"
    RESTART = "restart"
    FAIL_GROUP = "fail_group"


class RestartScope(str, Enum):
    """What starts again when a node is lost."""

    TASK = "task"
    GROUP = "group"
    NODE = "node"


class NeedKind(str, Enum):
    """What has to be true of a needed task before the needing one starts."""

    STARTED = "started"
    READY = "ready"
    OK = "ok"
    NOT_OK = "not_ok"
    ENDED = "ended"


class ReadyKind(str, Enum):
    """How readiness is observed on a task's first node."""

    TCP = "tcp"
    HTTP = "http"
    FILE = "file"
    COMMAND = "command"


@dataclass(frozen=True)
class Need:
    """Another task of the same job, and the state of it to wait for."""

    task: str
    kind: NeedKind = NeedKind.STARTED


class DependencyKind(str, Enum):
    """What has to be true of another job before this one starts: the kinds of sbatch(1)."""

    AFTER = "after"
    AFTERANY = "afterany"
    AFTEROK = "afterok"
    AFTERNOTOK = "afternotok"
    AFTERCORR = "aftercorr"
    AFTERBURSTBUFFER = "afterburstbuffer"
    SINGLETON = "singleton"


@dataclass(frozen=True)
class JobNeed:
    """One thing that is waited for outside the job: a job, an element N_i or a task N+k of it.

    `delay` is in seconds and only `after` has one. A singleton names no job: it waits for every earlier job of its
    name and user.
    """

    kind: DependencyKind
    job: int = 0
    element: Optional[int] = None
    task: Optional[int] = None
    delay: int = 0


@dataclass(frozen=True)
class Dependency:
    """Slurm's --dependency: all needs have to be met, or any one of them."""

    needs: tuple[JobNeed, ...] = ()
    any: bool = False


@dataclass(frozen=True)
class Ready:
    """A readiness probe: a port, `PORT/path`, a file or a shell command; tried every `period` seconds.

    An attempt that tasks wait for, and that is not ready `timeout` seconds after its start, fails; 0 waits for ever.
    """

    kind: ReadyKind
    target: str
    period: float = 0.5
    timeout: float = 1800.0


@dataclass(frozen=True)
class Backoff:
    """Seconds before the n-th retry: `first * factor**n`, at most `limit`, varied by +-`jitter` of itself."""

    first: float = 1.0
    factor: float = 2.0
    limit: float = 300.0
    jitter: float = 0.2


@dataclass(frozen=True)
class RetryPolicy:
    """Budgets of attempts; each counts attempts after the first, and `max_restarts` caps them all together."""

    max_restarts_on_errors: int = 0
    recover_on_exit_codes: tuple[int, ...] = ()
    max_recoveries: int = 20
    max_restarts: int = 50
    backoff: Backoff = Backoff()


@dataclass(frozen=True)
class SignalBefore:
    """Slurm's --signal: a signal some seconds before the time limit, to the batch shell only or to all steps."""

    name: str
    seconds: int = 60
    batch_only: bool = False


@dataclass(frozen=True)
class Streams:
    """Where a task reads and writes, as file name patterns of sbatch(1).

    An empty `output` is a file in the run directory; an empty `error` joins `output`.
    """

    output: str = ""
    error: str = ""
    input: str = ""
    append: bool = False


@dataclass(frozen=True)
class TaskSpec:
    """A named part of a job: what runs, on how many nodes, with what, and how its end is treated."""

    name: str
    form: Form = Form.RUN
    run: str = ""
    """Shell text (RUN), or the script's whole text (BATCH)."""
    setup: str = ""
    args: tuple[str, ...] = ()
    num_nodes: int = 1
    resources: Resources = Resources()
    ntasks: Optional[int] = None
    ntasks_per_node: Optional[int] = None
    cpus_per_task: Optional[int] = None
    workdir: str = ""
    chdir: bool = False
    """Whether a batch script names its working directory; else that is where it was submitted."""
    env: Mapping[str, str] = field(default_factory=dict)
    secrets: Mapping[str, str] = field(default_factory=dict)
    file_mounts: Mapping[str, str] = field(default_factory=dict)
    storage: tuple[StorageMount, ...] = ()
    flush: FlushPolicy = FlushPolicy()
    volumes: Mapping[str, str] = field(default_factory=dict)
    image: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    ports: tuple[str, ...] = ()
    primary: bool = True
    termination_delay: int = 0
    grace_period: int = 30
    notice_signal: str = ""
    on_preemption: str = ""
    """Shell text for the moment when the cluster takes its resources away, before TERM and within the grace period."""
    time: Optional[int] = None
    signal: Optional[SignalBefore] = None
    on_failure: OnFailure = OnFailure.IGNORE
    restart: Optional[RestartScope] = None
    retry: RetryPolicy = RetryPolicy()
    needs: tuple[Need, ...] = ()
    ready: Optional[Ready] = None
    share: str = ""
    spread: bool = False
    elastic: Optional[Elastic] = None
    """Set where members come and go; `num_nodes` is then the number that the group's own launch has."""
    streams: Streams = Streams()
    cluster: str = ""
    native: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Native options by kind of cluster: `slurm`, `kubernetes`."""

    @property
    def flushes(self) -> bool:
        """Whether an ended attempt may still have data to send."""
        return any(mount.written for mount in self.storage)


@dataclass(frozen=True)
class Demand:
    """What a task asks for on one cluster: the values of its fields of these names."""

    resources: Resources = Resources()
    image: str = ""
    labels: Mapping[str, str] = field(default_factory=dict)
    native: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True)
class Candidate:
    """A cluster that may have the job, and what is asked for there: a demand for each task, in their order.

    No demands: what the tasks say.
    """

    cluster: str
    demands: tuple[Demand, ...] = ()
    partition: str = ""


class Start(str, Enum):
    """Whether a group's members start as a gang, and for which of them resources are asked for at once."""

    TURNS = "turns"
    """The tasks of one stage start as a gang; each stage asks for its resources at its turn."""
    TOGETHER = "together"
    """All tasks are launched as one, and start as a gang."""
    INDEPENDENT = "independent"
    """As `turns`, but the tasks of one stage start each as it can."""


@dataclass(frozen=True)
class Origin:
    """Where a submission came from; for sacct, scontrol and file name patterns."""

    user: str = ""
    uid: int = 0
    host: str = ""
    directory: str = ""
    command: tuple[str, ...] = ()
    """The words of the submitting command line."""
    file: str = ""
    text: str = ""
    """The job file or batch script as it was submitted."""
    umask: int = 0o022
    job: int = 0
    """The job from inside which it was submitted, by that job's token; 0 for all others."""


@dataclass(frozen=True)
class Resubmission:
    """Which job was submitted again, as users write its id, and what was changed, as options of sbatch."""

    source: str
    changes: tuple[str, ...] = ()


@dataclass(frozen=True)
class JobSpec:
    """One submission."""

    name: str
    tasks: tuple[TaskSpec, ...]
    group: bool = False
    """Whether the tasks form a named group (their names end in the job's name)."""
    clusters: tuple[str, ...] = ()
    """Clusters to try in order; empty is the default cluster."""
    candidates: tuple[Candidate, ...] = ()
    """Where what is asked for depends on the place: what to try, in order. The tasks are those of the present one."""
    race: bool = False
    failover_after: Optional[int] = None
    start: Start = Start.TOGETHER
    start_timeout: Optional[int] = None
    inter_connection: bool = True
    restart: Optional[RestartScope] = None
    priority: Optional[int] = None
    nice: int = 0
    hold: bool = False
    begin: Optional[float] = None
    deadline: Optional[float] = None
    hold_on_failure: int = 0
    requeue: Optional[bool] = None
    array: Optional[ArraySpec] = None
    """The elements of an array as submitted; only a job of one task has them."""
    dependency: Dependency = Dependency()
    kill_on_invalid_dep: Optional[bool] = None
    """Whether a dependency that can never be met cancels the job; None: as the daemon's settings say."""
    adopted: str = ""
    """The cluster's own id of a job that was there before: it is watched, and never submitted."""
    parent: Optional[int] = None
    """The group that the job has joined: it is shown under it and ends with it."""
    on_checkpoint: tuple[EvaluationSpec, ...] = ()
    """What is evaluated of the checkpoints that the job writes."""
    stop_when: Optional[StopWhen] = None
    evaluation: Optional[EvaluationOf] = None
    """Of an evaluation: the checkpoint that it evaluates. It outlives the group that it joined."""
    member: Optional[MemberOf] = None
    """Of a member of an elastic task beyond those of its group's launch: its only task has one node, which that is."""
    worker: Optional[WorkerOf] = None
    """Of a worker: its pool."""
    cron: Optional[Schedule] = None
    """In a submission: makes a schedule of it. In a job: the schedule that it is a run of."""
    partition: str = ""
    account: str = ""
    qos: str = ""
    comment: str = ""
    native: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    """The exported part of the submitting environment, where the work sees the submitter's file system."""
    origin: Origin = Origin()
    script_options: Mapping[str, str] = field(default_factory=dict)
    """Of a batch script: options by their long names that replace those of its lines and its command line."""
    resubmission: Optional[Resubmission] = None
    notes: tuple[str, ...] = ()
    """Options that were accepted without effect; printed on stderr at submission."""
    later: Mapping[str, Any] = field(default_factory=dict)
    """Checked keys that this version reads but cannot carry out; a submission with any is refused."""
    later_places: Mapping[str, Place] = field(default_factory=dict)
    """What exactly cannot be carried out, in words for the refusal, and where it stands."""
    mount_places: Mapping[str, Place] = field(default_factory=dict)
    """Where the sources of `file_mounts` stand, by the source; only while the submission is checked."""

    def task(self, name: str) -> TaskSpec:
        """The task of that name; KeyError when there is none."""
        for task in self.tasks:
            if task.name == name:
                return task
        raise KeyError(name)

    @property
    def changes_size(self) -> bool:
        """Whether members of the group come and go while it runs."""
        return self.member is not None or any(task.elastic is not None for task in self.tasks)

    @property
    def first_index(self) -> int:
        """The index, among the members of its task, of a launch's first node."""
        return 0 if self.member is None else self.member.index

    @property
    def places(self) -> tuple[Candidate, ...]:
        """What to try, in order; empty for the default cluster alone."""
        return self.candidates or tuple(Candidate(name) for name in self.clusters)

    @property
    def choice(self) -> bool:
        """Whether there is more than one thing to try."""
        return len(self.candidates or self.clusters) > 1

    @property
    def across(self) -> bool:
        """Whether its tasks are on several clusters; then each says which is its own."""
        return len({task.cluster for task in self.tasks if task.cluster}) > 1

    def take(self, candidate: Candidate) -> JobSpec:
        """The spec that asks for what a candidate says."""
        if not candidate.demands:
            return self
        tasks = tuple(_ask(task, demand) for task, demand in zip(self.tasks, candidate.demands))
        return replace(self, tasks=tasks, partition=candidate.partition)

    def public(self) -> JobSpec:
        """The spec with its secrets' values blanked, for every eye but the work's own."""
        tasks = tuple(replace(task, secrets=_blank(task.secrets)) if task.secrets else task for task in self.tasks)
        return replace(self, tasks=tasks).without_evaluations()

    def without_evaluations(self) -> JobSpec:
        """The spec as clusters are given it: evaluations are the daemon's alone, and their jobs may have secrets."""
        return replace(self, on_checkpoint=(), stop_when=None) if self.on_checkpoint else self


def demand_of(task: TaskSpec) -> Demand:
    """What a task asks for now."""
    return Demand(task.resources, task.image, task.labels, task.native)


def _ask(task: TaskSpec, demand: Demand) -> TaskSpec:
    return replace(task, resources=demand.resources, image=demand.image, labels=demand.labels, native=demand.native)


def _blank(secrets: Mapping[str, str]) -> dict[str, str]:
    return dict.fromkeys(secrets, "***")
