"""What an adapter may be able to do beyond the contract, and what those abilities tell.

Each is a Protocol of its own that the controller looks up once with isinstance.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, runtime_checkable

from overspan.adapters.contract import Adapter, Decider, Node, Refusal, Unmet
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec


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
class Trace:
    """What one launch, of whatever installation, has on a cluster: `objects` in the cluster's words.

    `running` of them may still run work; `stuck` has a sentence for each that cannot go now. `resumes`: a later launch
    of the same job may be this one again.
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


@dataclass(frozen=True)
class StepRequest:
    """A step that a user wants in a launch that has its nodes: the words of srun(1), and what they were typed with.

    `own` tells that the launch is an allocation for this step alone. `terminal`: the step has the user's terminal.
    `alone`: it is not to share a connection with the daemon.
    """

    handle: str
    words: tuple[str, ...]
    environment: Mapping[str, str]
    directory: str
    umask: int = 0o022
    own: bool = False
    terminal: bool = False
    alone: bool = False


@dataclass(frozen=True)
class StepEntrance:
    """What to run for a step: `words` are its srun, whose exit code and streams are the step's.

    `guard` is a command to run beside it. It hands srun the signals that are written to it, a name a line. When its
    standard input ends it ends srun, where that has not ended, and removes what was prepared.
    """

    words: tuple[str, ...]
    guard: tuple[str, ...]


@runtime_checkable
class Troubles(Protocol):
    """An adapter that can say what is wrong with single launches there."""

    def troubles(self) -> Sequence[str]:
        """What hinders it now, or did a short while ago: a sentence each. Asks nobody."""
        ...


@runtime_checkable
class Deciders(Protocol):
    """Who decides differs from launch to launch, and its handle tells; `Adapter.decider` is that of the others."""

    def decider_of(self, handle: str) -> Decider:
        """Who decides about a launch of this cluster."""


@runtime_checkable
class Limits(Protocol):
    """It keeps wall times of its own for launches that the daemon decides about.

    A new one is ordered there first, and in force when it is told back as carried out.
    """

    def keeps_limits(self, handle: str) -> bool:
        """Whether it does so for a launch."""


@runtime_checkable
class Barrier(Protocol):
    """Launches of jobs with a choice of clusters can be held back here: the daemon decides about them.

    Nothing of the user's runs before the daemon's first `Launch`. The adapter is a `Release` too: a launch that nobody
    wants any more is ended by that alone, whatever it waits for. It is so for jobs that race (`Job.racers`), and for
    all with several clusters unless an `Expire` takes them back.
    """

    def find_obstacle(self, job: Job) -> str:
        """Why that cannot be done for a job; empty where it can. An answer from what is known."""


@runtime_checkable
class Patience(Protocol):
    """The cluster says how long it has to start a job that could go to another, where the job's file does not."""

    def patience(self, job: Job) -> float | None:
        """Seconds from the offer; None: for ever."""


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
class Personal(Protocol):
    """The cluster is reached as the owner of each job (`JobSpec.origin`), and as whoever asks something else.

    A shared daemon uses no other. Handles tell their owner.
    """

    def as_user(self, user: str) -> Adapter:
        """The cluster as that user reaches it."""


@runtime_checkable
class Exec(Protocol):
    """Users can have a shell beside the work."""

    async def enter(self, request: ShellRequest) -> Entrance:
        """What to run on the user's terminal. Conflict where there is nothing to enter, InvalidRequest, Unreachable."""


@runtime_checkable
class NativeAllocations(Protocol):
    """Allocations without a script are native jobs, and their steps are the cluster's own srun's.

    Such a launch ends by the signals of `model.allocations`; nobody there notices when its client is gone.
    """

    async def prepare_step(self, request: StepRequest) -> StepEntrance:
        """What to run for a step. InvalidRequest for a launch that takes none, Unreachable."""
        ...


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
class Partitions(Protocol):
    """The cluster's partitions are in its settings, and a job of a list of them may have the first that takes it."""

    def default_partition(self) -> str:
        """The partition of jobs that name none."""


@runtime_checkable
class KnownNodes(Protocol):
    """The cluster takes jobs that no node of it could hold; the adapter remembers what its nodes have."""

    def known_nodes(self) -> Sequence[Node]:
        """The nodes as they were seen last, without asking; none where they were not, or where others may come."""


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
class Located(Protocol):
    """The adapter can tell where its settings lead: handles mean nothing elsewhere, and must not be asked about there.

    Without it all clusters of its kind and name are one place.
    """

    def place(self) -> str:
        """The place in words, the same for the same settings; contacts nothing. Raises Unreachable."""


class Written(NamedTuple):
    """Where a launch works and writes on its cluster; empty where that is what the job's own words say.

    With a folder, relative paths are below it. An `error` that is empty goes with the output.
    """

    folder: str = ""
    output: str = ""
    error: str = ""


@runtime_checkable
class Writes(Protocol):
    """Launches there work and write elsewhere than the submitter's own paths say."""

    def find_written(self, handle: str) -> Written:
        """Where a launch works and writes, by its handle alone; contacts nothing."""


@runtime_checkable
class Numbered(Protocol):
    """The adapter knows launches by the numbers of their jobs, so a number must not be given again."""

    def find_last_number(self) -> int:
        """The highest number of a job that has left anything there; 0 for none."""


@runtime_checkable
class Release(Protocol):
    """Launches leave objects on the cluster that have to go once their outcome is stored, whoever stored it."""

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Remove what is left of every launch of the installation but those that are named.

        `handles` are watched, the submissions of `tokens` are owed, on whichever cluster: two entries of the
        configuration may be one place, and one that is configured no more keeps its launches. What this process submits
        while the call is under way stays as well. Raises Unreachable; to be called again then.
        """


@runtime_checkable
class Ceilings(Protocol):
    """What a launch is made of ends some time after its wall times, and cannot be made to live longer."""

    async def longest_time(self, handle: str, task: str) -> int | None:
        """The longest wall time in seconds that a task can be given while the launch lasts; None for any."""


@runtime_checkable
class Traces(Protocol):
    """The adapter can list what launches have on its cluster, those of other installations too."""

    async def find_traces(self) -> list[Trace]:
        """All launches that have anything there. Raises Unreachable."""

    async def remove_traces(self, traces: Sequence[Trace]) -> None:
        """End these launches and remove all of them, with the logs that can be kept at once. Raises Unreachable."""
