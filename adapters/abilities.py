"""Optional abilities of an adapter beyond the contract, and the records that they and the traits exchange.

Each ability is a Protocol that the controller looks up with isinstance. What one kind of cluster alone has is a field
of its `Traits`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.pools import WorkerLife
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.volumes import AppliedVolume, VolumeRecord, VolumeRequest
from overspan.bridge.runtime.data.cache import CacheListing, CleanedCache
from overspan.bridge.runtime.data.rescue import RescuedData
from overspan.bridge.runtime.data.unsent import UnsentListing


@dataclass(frozen=True)
class Finding:
    """One line of `span check`: what was tried, whether it works, the evidence, and how to fix it."""

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
    """How a user logs in to a cluster on a terminal: the command to run, and a message for the user.

    Without `words` there is nothing to run. `check` is a command that exits with 0 where the login still works.
    """

    message: str
    words: tuple[str, ...] = ()
    check: tuple[str, ...] = ()


@dataclass(frozen=True)
class Step:
    """A step of a launch, or one component of it: the task that it ran in, and the numbers of its nodes there.

    `cpus` 0 is all that the task has on them.
    A step that neither is `running` nor has an `ended_at` was killed at an unknown time.
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
class Trace:
    """What one launch, of this installation or another, has on a cluster: `objects` in the cluster's words.

    `running` is how many of them may still run work; `stuck` has a sentence for each that cannot be removed now.
    `resumes`: a later launch of the same job may continue this one.
    """

    token: str
    handle: str
    installation: str
    job: int
    launch: int
    objects: tuple[str, ...]
    running: int = 0
    stuck: tuple[str, ...] = ()
    resumes: bool = False


@dataclass(frozen=True)
class ShellRequest:
    """A user's request for a shell or a command at one member of a launch that has its nodes.

    `host` is the name of the member's node. Without a `command` it is a shell. `terminal`: the user sits at one.
    """

    handle: str
    task: str
    node: int = 0
    host: str = ""
    command: tuple[str, ...] = ()
    terminal: bool = True


@dataclass(frozen=True)
class Entrance:
    """What to run on the user's own terminal to get there; `environment` is added to the user's.

    Its exit code is the shell's or the command's. The job does not depend on it.
    """

    words: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class StepRequest:
    """A user's request for a step in a launch that has its nodes: the words of srun(1), and where they were typed.

    `own`: the launch is an allocation for this step alone. `terminal`: the step has the user's terminal.
    `alone`: the step must not share a connection with the daemon. `access`: as in `Launch`, for commands in the step.
    """

    handle: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    umask: int = 0o022
    own: bool = False
    terminal: bool = False
    alone: bool = False
    access: str = ""


@dataclass(frozen=True)
class StepEntrance:
    """What to run for a step: `words` are its srun, whose exit code and streams are the step's.

    `guard` is a command to run beside it. It passes srun the signals whose names it reads, one a line. When its
    standard input ends, it ends srun if that still runs, and removes what was prepared. `last_line` is a regular
    expression for what the program that connects prints of itself at the end, on standard error; empty: nothing.
    """

    words: tuple[str, ...]
    guard: tuple[str, ...]
    last_line: str = ""


@dataclass(frozen=True)
class KeptForm:
    """What a launch was sent as, in its cluster's own form: a script, manifests, a plan. Secrets are not in it.

    `source` says who has kept it, as a sentence's end: `as Slurm has it`.
    """

    text: str
    source: str


class DeclaredWorker(NamedTuple):
    """A job that is a worker of a pool: its task says what it has. A `closed` one takes no new launches.

    `life` is that of one with a time limit.
    """

    job: int
    name: str
    task: TaskSpec
    closed: bool = False
    life: WorkerLife | None = None


class WorkerKind(NamedTuple):
    """What a worker can be: a task, and the class of workers that it is of."""

    task: TaskSpec
    worker_class: str = ""


class HeldLaunch(NamedTuple):
    """What a worker says of a launch: how many bytes of its journal it has sent, and how many orders it has."""

    sent: int
    orders: int


class WorkerMessage(NamedTuple):
    """What a worker says: its job, a word that it drew at its start, and how far it is with each launch.

    `journals` has for some of them an offset and what follows it. `mark` is what it reads in the daemon's folder, where
    it sees that. `features` are what its version can do and earlier ones cannot.
    """

    job: int
    word: str
    held: Mapping[str, HeldLaunch]
    journals: Mapping[str, tuple[int, str]]
    mark: str = ""
    wait: float = 0.0
    features: frozenset[str] = frozenset()


class OutputPiece(NamedTuple):
    """A piece of a file into which a launch prints, from a worker that does not see the daemon's folder.

    `number` is the file's among those of the launch, `stream` has its task, node, attempt, run and stream.
    """

    job: int
    word: str
    handle: str
    number: int
    stream: Mapping[str, str | int]
    offset: int
    data: bytes


class Written(NamedTuple):
    """The working directory and output files of a launch on its cluster; empty where the job's own paths hold.

    With a folder, relative paths are below it. An empty `error` shares the output's file.
    """

    folder: str = ""
    output: str = ""
    error: str = ""


@runtime_checkable
class Troubles(Protocol):
    """The adapter can report what is wrong with single launches."""

    def troubles(self) -> Sequence[str]:
        """A sentence for each present or recent problem. Answers from memory; the cluster is not asked."""
        ...


@runtime_checkable
class StartGates(Protocol):
    """Start gate: the cluster can hold back launches of jobs with several candidates; the daemon decides about them.

    No user code runs before the daemon's first `Launch`. The adapter is a `Cleanup` too: releasing an unwanted launch
    ends it, also at the gate. Jobs that race (`Job.racers`) wait at the gate, and so do all jobs with several
    candidates, unless an `Expire` can take them back.
    """

    def find_obstacle(self, job: Job) -> str:
        """Why a job cannot be held back; empty where it can. Answers from memory."""


@runtime_checkable
class OtherMembers(Protocol):
    """Members of a launch find those of its tasks that are on other clusters, by the same names as their own."""

    async def tell_members(self, handle: str, members: Sequence[Placement], further: Sequence[Placement]) -> None:
        """Make known where all members elsewhere are, in place of what was told before.

        `members` are the launch's own; `further` ones of its elastic tasks are jobs of their own, which `SetPeers`
        tells the work of the launch as well.
        Raises Unreachable, and Denied where a right is missing.
        """


@runtime_checkable
class HostNetwork(Protocol):
    """Its tasks have addresses of their own, and may have those of their nodes instead."""

    def uses_host_network(self, job: Job, task: TaskSpec) -> bool:
        """Whether a task of a job has its nodes' addresses."""


@runtime_checkable
class Check(Protocol):
    """The adapter can diagnose its cluster: what works, and how to fix the rest."""

    async def check(self) -> list[Finding]:
        """Try everything that jobs need there."""


@runtime_checkable
class Exec(Protocol):
    """Users can have a shell beside the work."""

    async def enter(self, request: ShellRequest) -> Entrance:
        """What to run on the user's terminal. Conflict where there is nothing to enter, InvalidRequest, Unreachable."""


@runtime_checkable
class Plan(Protocol):
    """The adapter can print what it would send."""

    def plan(self, job: Job) -> str:
        """The native form of the job (a script, manifests, the local processes), with no effect at all."""


@runtime_checkable
class Sent(Protocol):
    """The adapter can tell what a launch was sent as: something on its cluster has kept that."""

    async def read_sent(self, handle: str) -> KeptForm | None:
        """What has been kept; None where nothing has it any more. Raises Unreachable, and NotFound for a handle."""


@runtime_checkable
class Admission(Protocol):
    """The adapter can say at once that a job could never run there."""

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal in the cluster's words, or None."""


@runtime_checkable
class Notes(Protocol):
    """The adapter can name the options of a job that have no effect on its cluster."""

    def notes(self, job: Job) -> tuple[str, ...]:
        """One sentence for each such option, shown to the submitter."""


@runtime_checkable
class Throttle(Protocol):
    """The adapter enforces array throttles itself, so that more elements may be launched than may run.

    Elements above the limit are pending with the reason JobArrayTaskLimit and block no other job. The limit is that of
    the newest launch or call; a launch that is handed over again (`ClusterConfig.list_waiting`) brings the present one.
    """

    async def set_throttle(self, array: int, limit: int | None) -> None:
        """Limit how many elements of the array run at once; None for no limit. Running elements are not ended.

        A call before all others applies from the first start on. Raises Unreachable: call again then.
        """


@runtime_checkable
class Steps(Protocol):
    """The adapter can tell which steps ran inside its launches."""

    async def steps(self, handles: Sequence[str]) -> list[Step]:
        """The steps of the launches, launch by launch, in order; none for unknown launches."""


@runtime_checkable
class Located(Protocol):
    """The adapter can identify the cluster behind its settings: handles mean nothing on another one.

    Without this ability, all clusters of one kind and name count as the same.
    """

    def place(self) -> str:
        """The cluster's identity as a text, equal for equal settings; contacts nothing. Raises Unreachable."""


@runtime_checkable
class Cleanup(Protocol):
    """Launches leave objects on the cluster, to be removed once their outcome is stored by any daemon."""

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Remove what is left of every launch of the installation except the named ones.

        `handles` are watched launches, `tokens` unanswered submissions, of all clusters: two entries of the
        configuration may be one cluster, and a cluster that left the configuration keeps its launches. What this
        process submits during the call stays as well. Raises Unreachable: call again then.
        """


@runtime_checkable
class TakesWorkers(Protocol):
    """The nodes of the cluster are workers: jobs on other clusters, which come to it by themselves."""

    def declare(self, workers: Sequence[DeclaredWorker], kinds: Sequence[WorkerKind]) -> None:
        """Say which jobs are workers now, and what workers there can be. One that is gone has lost what it held."""

    def list_fitting(self, job: Job) -> list[WorkerKind]:
        """The kinds of workers that could run a job."""
        ...

    def find_seconds(self, job: Job) -> int | None:
        """How many seconds a launch of the job may take of a worker, its end included; None without a limit."""
        ...

    async def exchange(self, message: WorkerMessage) -> dict[str, Any]:
        """Take in what a worker says, and answer what it is owed, in `wait` seconds at most. Raises Denied."""
        ...

    async def keep_output(self, piece: OutputPiece) -> bool:
        """Keep a piece of output; False where the launch is not the worker's. Raises Denied, and OSError."""
        ...

    def list_workers(self) -> list[dict[str, Any]]:
        """The workers in contact: job, capacity, what is used, the jobs that they hold. Answers from memory."""
        ...

    def end_waits(self) -> None:
        """Answer all workers that wait for news: the daemon ends."""


@runtime_checkable
class LaunchIntake(Protocol):
    """The queue is in memory: a launch is accepted at once, so that its job is stored with the handle.

    Only of clusters whose traits are `stateless`.
    """

    def take_in(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """As `submit`, of jobs that are about to be stored. Nothing of them may begin before they are."""
        ...

    def give_up(self, handle: str) -> None:
        """Forget a launch that was taken in: its job could not be stored."""


@runtime_checkable
class Traces(Protocol):
    """The adapter can list all objects of launches on its cluster, other installations' included."""

    async def find_traces(self) -> list[Trace]:
        """All launches that have objects there. Raises Unreachable."""

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        """End these launches and remove their objects; save only logs that are at hand. Raises Unreachable."""


@runtime_checkable
class DataRescue(Protocol):
    """Data that a job could not send to its object stores stays on the cluster, and can be sent later."""

    async def rescue_data(self, job: Job, handle: str) -> RescuedData | None:
        """Send what an ended job has left, whose newest launch has that handle; None where it has left nothing.

        Raises ObjectStoreError, OSError and OverspanError.
        """


class EndedLaunch(NamedTuple):
    """A job that has ended, and the handle of its newest launch."""

    job: Job
    handle: str


class UnsentKeeper(Protocol):
    """What ended jobs could not send stays for a while, and can be told and removed; `Traits.unsent` of a cluster.

    All raise OverspanError.
    """

    @property
    def seconds(self) -> int | None:
        """How long after a job's end it is kept; None: as long as the job is known."""
        ...

    async def list_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """What these have left, and why that of others cannot be told."""
        ...

    async def remove_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """Remove what these have left, unless it is being sent; what that was, and why that of others stays."""
        ...


class DataCache(Protocol):
    """Contents that jobs only read are kept for the next ones; `Traits.data_cache` of a cluster that does so.

    All raise OverspanError.
    """

    async def list_cache(self) -> CacheListing:
        """What it has, and how much that may be."""
        ...

    async def clean_cache(self, seconds: float) -> CleanedCache:
        """Remove contents that no job uses or has used for so many seconds."""
        ...


class VolumeKeeper(Protocol):
    """Makes, lists and removes volumes that outlive jobs; `Traits.volumes` of a cluster that has them.

    All raise Unreachable, and Denied where a right is missing.
    """

    async def apply(self, request: VolumeRequest) -> AppliedVolume:
        """Have a volume be there as asked. A size may grow. Conflict with both values for any other change."""
        ...

    async def list(self) -> Sequence[VolumeRecord]:
        """The volumes, by name."""
        ...

    async def delete(self, name: str) -> None:
        """Remove a volume with all that is in it. NotFound, and Conflict for one that was not made by `apply`."""
