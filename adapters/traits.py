"""Traits: what an adapter states of its kind of cluster, in one record. The defaults are those of a simple adapter.

Functions of the record answer from memory and contact nothing, except those that are coroutines.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass

from overspan.adapters.abilities import (
    DataCache,
    Foreign,
    Invitation,
    StepEntrance,
    StepRequest,
    UnsentKeeper,
    VolumeKeeper,
    Written,
)
from overspan.adapters.contract import Adapter, Decider, Node, Unmet
from overspan.adapters.mailboxes import Mailboxes
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.storage import MountMode


@dataclass(frozen=True)
class ArraySizes:
    """Of native arrays: elements that are submitted together become one submission there."""

    elements: int
    """How many elements of an array one submission may have."""
    submissions: int
    """How many submissions (an array counts as one) make a batch: their answers are known after the last one."""


FindKnown = Callable[[Collection[int]], Awaitable[Collection[int]]]
"""Which of these jobs the daemon still knows, wherever they run or ran."""


def _keep_none(handle: str) -> bool:
    return False


def _wait_for_ever(job: Job) -> float | None:
    return None


def _mount_all(spec: JobSpec) -> str:
    return ""


_AS_TOLD = Written()


def _write_as_told(handle: str) -> Written:
    return _AS_TOLD


@dataclass(frozen=True, kw_only=True)
class Traits:
    """What the daemon does differently for a cluster; an adapter makes it once, when it is opened."""

    decider: Decider = Decider.SUPERVISOR
    """Who decides about launches there; the supervisor where a journal is copied."""
    decider_of: Callable[[str], Decider] | None = None
    """Who decides about the launch of a handle, where that differs from launch to launch."""
    keeps_limits: Callable[[str], bool] = _keep_none
    """Whether the cluster itself enforces the wall time of a launch that the daemon decides about.

    A new limit is ordered there first; it is in force once the cluster reports the order as carried out.
    """

    this_machine: bool = False
    """Launches run on the daemon's machine and see its files; a job gets all it needs at once."""
    stateless: bool = False
    """It knows of launches by the store alone: a submission whose answer is not stored has had no effect."""
    follows_cursors: bool = False
    """`observe` is given the daemon's own `Cursors`, of which it may ask for the changes, and keeps none of it."""
    warm_nodes: bool = False
    """Its nodes have their set-up, files and image before a job comes: those of a job are left out, with a note."""
    gives_back: bool = False
    """An `Expire` ends a launch only while it waits, and is reported only once it certainly did.

    Elsewhere a launch is withdrawn for failover only if it waits behind a start gate (`StartGates`).
    """
    returns_grants: bool = False
    """A `Hold` gives back what a launch at its start gate has, also after its grant was told; a `Release` asks anew.

    The launch is watched from its first cursor then, and its next grant is told again.
    """
    requeued_by: str = ""
    """The `by` of a `Requeue` that the cluster itself made: the same native job is the next launch. Empty: never."""
    own_queue: bool = False
    """The cluster's own queue orders the waiting jobs, by priorities that are not Overspan's; many people ask it."""
    captures_logs: bool = False
    """The daemon keeps what it has seen of logs that the cluster itself forgets."""
    mount_modes: frozenset[MountMode] = frozenset()
    """How folders of object stores can be seen there; a job with another mode is refused."""
    find_mount_obstacle: Callable[[JobSpec], str] = _mount_all
    """Why no folder of an object store can be mounted for a job like that; it gives an empty text where they can."""
    data_cache: DataCache | None = None
    """Keeps contents for `span cache`; None where each job fetches its own."""
    unsent: UnsentKeeper | None = None
    """Keeps what ended jobs could not send, for `span data ls`; None where nothing of it stays."""
    volumes: VolumeKeeper | None = None
    """Makes and lists volumes for `span volume`; None where there are none by name."""
    has_leftovers: Callable[[], bool] | None = None
    """Whether ended launches have left something that it still looks after, so that a later daemon has to call it."""
    warns_of_preemption: bool = False
    """`on_preemption` of the job file has an effect."""
    failover_timeout: Callable[[Job], float | None] = _wait_for_ever
    """Seconds for which the cluster may keep a job waiting that could fail over; None for no limit."""

    verdict_seconds: float | None = None
    """How long a submitter waits for the cluster's own verdict on the submission; then no trial is made before.

    None where the cluster gives none.
    """
    arrays: ArraySizes | None = None
    """Of native arrays; None where each element is a submission."""
    waits_for: Callable[[Job, Sequence[Unmet]], bool] | None = None
    """Whether the cluster can wait for all of these, so that a dependent job is submitted before its needs are met.

    A launch or order with `needs` takes effect only if the cluster would surely decide each of them as Overspan does.
    Where that is no longer certain on arrival, the adapter refuses it for a while, with the reason Dependency.
    """
    default_partition: Callable[[], str] | None = None
    """The partition of jobs that name none, where the settings define the partitions.

    Of a list of partitions a job gets the first one that accepts it.
    """
    known_nodes: Callable[[], Sequence[Node]] | None = None
    """The nodes as last seen, of a cluster that accepts jobs which fit none of them; none before the first look."""

    calls_left: Callable[[], str] | None = None
    """What is left of the cluster's own limit of calls, in words; it gives an empty text while there is none."""

    find_written: Callable[[str], Written] = _write_as_told
    """Where a launch works and writes, from its handle alone, if not by the submitter's own paths."""
    longest_time: Callable[[str, str], Awaitable[int | None]] | None = None
    """The longest wall time, in seconds, that a running launch's task can be given; it gives None for any.

    For clusters where the objects of a launch have a fixed end. Takes handle and task; asks the cluster.
    """
    find_end: Callable[[str], Awaitable[float | None]] | None = None
    """When the cluster will end a running launch by a limit of its own, by its handle, in the cluster's time.

    It gives infinity for never, and None while that is not known. Asks the cluster.
    """
    find_last_number: Callable[[], int] | None = None
    """The highest id of a job that has left anything there, where launches go by job ids; it gives 0 for none."""
    forget: Callable[[float, FindKnown], Awaitable[int]] | None = None
    """Removes files older than a time of jobs that are not known any more; gives how many jobs.

    None where no files are kept.
    """

    as_user: Callable[[str], Adapter] | None = None
    """The adapter that reaches the cluster as that user; a shared daemon uses no other clusters.

    The cluster is reached as the owner of each job (`JobSpec.origin`), and otherwise as the user who asks. Handles
    contain their owner.
    """
    remote_python: Callable[[Sequence[str], str], Awaitable[Sequence[str]]] | None = None
    """What to run here so that python3 runs with these words where jobs connect to when they take that HOST:PORT.

    Its streams are that program's. Asks for no password; raises OverspanError. None where it cannot be.
    """
    mailboxes: Mailboxes | None = None
    """Reaches workers of pools that cannot connect to the daemon; None where they have to."""
    login: Callable[[], Awaitable[Invitation]] | None = None
    """What to run on a terminal to log in, where that may ask for passwords and codes."""
    find_job: Callable[[str], Awaitable[Foreign]] | None = None
    """The facts of a native job that Overspan did not submit. NotFound, InvalidRequest, Denied and Conflict.

    `submit` takes a launch whose spec has `adopted` set as that job, and never makes a new one of it.
    """
    prepare_step: Callable[[StepRequest], Awaitable[StepEntrance]] | None = None
    """What to run for a step, where allocations without a script are native jobs and steps the cluster's own srun's.

    Such a launch ends by the signals of `model.allocations`; the cluster does not notice when its client is gone.
    InvalidRequest for a launch that takes no steps, Unreachable.
    """

    def find_decider(self, handle: str) -> Decider:
        """Who decides about a launch."""
        return self.decider if self.decider_of is None else self.decider_of(handle)


def choose_modes(fuse: bool) -> frozenset[MountMode]:
    """The modes of a cluster whose nodes have folders of their own; `fuse`: MOUNT may be read through the store."""
    modes = frozenset({MountMode.COPY, MountMode.MOUNT_CACHED})
    return modes | {MountMode.MOUNT} if fuse else modes
