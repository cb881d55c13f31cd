"""What happens to a job: the only input of the lifecycle, and the lines of the journal.

Three families. *Reports* come from the world: a node started, ended, was lost. *Orders* come from people.
*Decisions* are made by the lifecycle itself; each is recorded before it is carried out, so that replaying a journal
gives the same job and a restarted decider knows what it had begun.
Times are seconds since the epoch; node indices count from 0; an empty `task` means the whole job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Optional, Union, get_args

from overspan.bridge.model.records import NamedTuple

# --- reports ---------------------------------------------------------------------------------------------------------


class Queued(NamedTuple):
    """The cluster keeps the job waiting, for this reason in Slurm's words; `until` is its own estimate.

    With a `task` it is that one's present attempt that does not start, in a job that has been granted. `partition` is
    the cluster's own name of the one that the job is in, where it tells that.
    """

    at: float
    reason: str
    until: Optional[float] = None
    task: str = ""
    partition: str = ""


class Granted(NamedTuple):
    """The cluster gave the resources: (task, index, node, address, gpus) for each member, in its own partition."""

    at: float
    members: tuple[tuple[str, int, str, str, tuple[int, ...]], ...]
    partition: str = ""


class Refused(NamedTuple):
    """The cluster refused the job for good."""

    at: float
    message: str


class NodeStarted(NamedTuple):
    """The user's program runs on that node; `storage` as of `NodeRun`."""

    at: float
    task: str
    attempt: int
    node: int
    run: int = 0
    storage: str = ""


class NodeEnded(NamedTuple):
    """That node's program ended; `cause` is a `Cause` value where the report knows more than the exit code."""

    at: float
    task: str
    attempt: int
    node: int
    run: int = 0
    exit_code: int = 0
    signal: int = 0
    cause: str = ""
    detail: str = ""


class TaskReady(NamedTuple):
    """The readiness probe of a task's attempt succeeded."""

    at: float
    task: str
    attempt: int


class Probed(NamedTuple):
    """The readiness probe of a task's attempt has not succeeded in that many tries; `answer` is what the last one met.

    Told when the answer changes, and ever more rarely while it does not.
    """

    at: float
    task: str
    attempt: int
    tries: int
    answer: str = ""


class Flushing(NamedTuple):
    """Data of an ended attempt is on its way to its stores; `left` is the bytes that are not there yet.

    `trouble` says what keeps it from getting there at present.
    """

    at: float
    task: str
    attempt: int
    left: int
    trouble: str = ""


class Flushed(NamedTuple):
    """All data of an ended attempt is in its stores; with an `error`, `left` bytes of it are not and will not be."""

    at: float
    task: str
    attempt: int
    error: str = ""
    left: int = 0


class LaunchLost(NamedTuple):
    """The cluster no longer knows the launch; `cause` is a `Cause` value (NODE, PREEMPTION, TIME, CANCEL...)."""

    at: float
    launch: int
    cause: str
    detail: str = ""


class Resolved(NamedTuple):
    """A need of the dependency, by its place, is met since `met_at`; None: it never can be."""

    at: float
    place: int
    met_at: Optional[float]


class ClockSet(NamedTuple):
    """The machine's clock was set by so many seconds, forward or (below zero) back; `at` is what it shows now."""

    at: float
    seconds: float


class Gathered(NamedTuple):
    """Every element of an array has ended; the array as a whole ended so (`state` is a `State` value)."""

    at: float
    state: str
    exit_code: int = 0
    signal: int = 0


# --- orders ----------------------------------------------------------------------------------------------------------


class Cancel(NamedTuple):
    """End the job, or one task of it, for good.

    `grace` is the seconds between TERM and KILL where the tasks' own do not count; it is for the whole job only.
    With `done`, a reason in one word, the whole job ends as COMPLETED: it has reached what it is for (`stop_when`).
    With `delayed`, it then gets a notice first, and the termination delay of each task.
    Without `flush`, data that is not in its store yet stays where it is.
    """

    at: float
    task: str = ""
    by: str = ""
    grace: Optional[int] = None
    done: str = ""
    delayed: bool = False
    flush: bool = True


class Hold(NamedTuple):
    """Do not start the job; `by_admin` gives Slurm's JobHeldAdmin."""

    at: float
    by: str = ""
    by_admin: bool = False


class Release(NamedTuple):
    """End a hold."""

    at: float
    by: str = ""


class Requeue(NamedTuple):
    """End what runs and put the job back into the queue, held if asked."""

    at: float
    by: str = ""
    hold: bool = False


class Preempt(NamedTuple):
    """Take a running job's resources for another: back into the queue, or ended for good.

    `grace` is the seconds between TERM and KILL where the tasks' own do not count.
    """

    at: float
    requeue: bool = True
    grace: Optional[int] = None
    by: str = ""


class Restart(NamedTuple):
    """Start one task again, or all, in place and at no budget's cost."""

    at: float
    task: str = ""
    by: str = ""


class Signal(NamedTuple):
    """Send a signal to a task's processes, or all; `batch_only` reaches just the main process.

    A batch script itself is reached by `batch_only`, by `full`, and by KILL (scancel(1)).
    """

    at: float
    signal: int
    task: str = ""
    batch_only: bool = False
    by: str = ""
    full: bool = False


class SetTime(NamedTuple):
    """Change the wall time (seconds, None is no limit) of a task, or of all."""

    at: float
    time: Optional[int]
    task: str = ""
    by: str = ""


class SetPriority(NamedTuple):
    """Change the priority of a waiting job."""

    at: float
    priority: int
    by: str = ""


class SetNice(NamedTuple):
    """Change the nice value of a waiting job, which is subtracted from its priority."""

    at: float
    nice: int
    by: str = ""


class SetBegin(NamedTuple):
    """Change the time before which a waiting job does not start; None: it may start now."""

    at: float
    begin: Optional[float]
    by: str = ""


class SetDependency(NamedTuple):
    """Change what a waiting job waits for; `dependency` is the encoded `spec.Dependency`."""

    at: float
    dependency: Mapping[str, Any]
    by: str = ""


class SetThrottle(NamedTuple):
    """Change how many elements of an array may run at once; None: all."""

    at: float
    throttle: Optional[int]
    by: str = ""


class CancelElements(NamedTuple):
    """Cancel elements of an array that are no jobs yet: (first, last, step) for each range."""

    at: float
    ranges: tuple[tuple[int, int, int], ...]
    by: str = ""


class Scale(NamedTuple):
    """Change how many members an elastic task is to have; None: as its file says, and more where there is room."""

    at: float
    task: str
    size: Optional[int]
    by: str = ""


class SetPeers(NamedTuple):
    """Tell a launch of all members of its group: (task, index, node, address, state) for each.

    Where several lists arrive, that of the highest `generation` counts.
    """

    at: float
    generation: int
    peers: tuple[tuple[str, int, str, str, str], ...]


class Suspend(NamedTuple):
    """Stop a running job's processes without ending them."""

    at: float
    by: str = ""


class Resume(NamedTuple):
    """Let a suspended job go on."""

    at: float
    by: str = ""


# --- decisions -------------------------------------------------------------------------------------------------------


class Launch(NamedTuple):
    """Start an attempt of a task on all its nodes."""

    at: float
    task: str
    attempt: int


class NodeRelaunch(NamedTuple):
    """Start one node of a running attempt again (`restart: node`)."""

    at: float
    task: str
    attempt: int
    node: int
    run: int


class Notice(NamedTuple):
    """Tell a task that it is to end, and when: a notice, and its notice signal.

    `kind` is the notice's own: empty for an auxiliary whose primaries are done.
    """

    at: float
    task: str
    deadline: float
    kind: str = ""


class Warn(NamedTuple):
    """Tell an attempt that its time limit is near: a notice, and the signal that was asked for (Slurm's --signal)."""

    at: float
    task: str
    attempt: int
    deadline: float
    signal: str = ""
    batch_only: bool = False


class Terminate(NamedTuple):
    """Send TERM to an attempt; KILL follows at `kill_at`."""

    at: float
    task: str
    attempt: int
    cause: str
    kill_at: float


class Kill(NamedTuple):
    """Send KILL to the remaining processes of an attempt."""

    at: float
    task: str
    attempt: int


class AbandonFlush(NamedTuple):
    """Stop sending an ended attempt's data: its time is over, or an operator does not want it."""

    at: float
    task: str
    attempt: int


class HoldOver(NamedTuple):
    """The time for looking at a failed job's allocation is over."""

    at: float


class Drawn(NamedTuple):
    """Elements of an array become jobs: (first, last, step) for each range; their ids begin at `first_id`."""

    at: float
    ranges: tuple[tuple[int, int, int], ...]
    first_id: int


class Expire(NamedTuple):
    """The job's deadline, its start timeout or its time on one of several clusters has passed before it could start.

    `cluster` is where it goes next, for the cause `failover` only, and `candidate` which of the job's places that is.
    As an order it ends a launch that waits, and never one that has started.
    """

    at: float
    cause: str
    cluster: str = ""
    candidate: Optional[int] = None


class Offer(NamedTuple):
    """A job with a choice of clusters is given to that one; `failover_after` counts from here.

    `patience` is the seconds after which it goes on where its file does not say.
    """

    at: float
    cluster: str
    patience: Optional[float] = None


class Move(NamedTuple):
    """The job goes to another of its places: the present cluster, which surely has it not, refused it or is down."""

    at: float
    cluster: str
    text: str
    refused: bool = False
    candidate: Optional[int] = None


class Enter(NamedTuple):
    """A waiting job that races gets a bid on that cluster: a further launch, which may only wait."""

    at: float
    cluster: str


class Withdraw(NamedTuple):
    """The bid on that cluster ends without having started; `text` says why where the cluster itself ended it."""

    at: float
    cluster: str
    text: str = ""
    refused: bool = False


class Promote(NamedTuple):
    """The bid on that cluster takes the place of the job's launch; `text` says what became of the former one."""

    at: float
    cluster: str
    text: str = ""
    refused: bool = False


Report = Union[
    Queued,
    Granted,
    Refused,
    NodeStarted,
    NodeEnded,
    TaskReady,
    Probed,
    Flushing,
    Flushed,
    LaunchLost,
    Resolved,
    ClockSet,
    Gathered,
]
Order = Union[
    Cancel,
    Hold,
    Release,
    Requeue,
    Preempt,
    Restart,
    Signal,
    SetTime,
    SetPriority,
    SetNice,
    SetBegin,
    SetDependency,
    SetThrottle,
    CancelElements,
    Scale,
    SetPeers,
    Suspend,
    Resume,
]
Decision = Union[
    Launch,
    NodeRelaunch,
    Notice,
    Warn,
    Terminate,
    Kill,
    AbandonFlush,
    HoldOver,
    Drawn,
    Expire,
    Offer,
    Move,
    Enter,
    Withdraw,
    Promote,
]
Event = Union[Report, Order, Decision]

REPORTS: tuple[type[Any], ...] = get_args(Report)
ORDERS: tuple[type[Any], ...] = get_args(Order)
DECISIONS: tuple[type[Any], ...] = get_args(Decision)
EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in REPORTS + ORDERS + DECISIONS}


def event_to_document(event: Event) -> dict[str, Any]:
    """The event as a flat JSON object; fields at their defaults are left out."""
    kind = type(event)
    document: dict[str, Any] = {"event": kind.__name__}
    defaults = kind._field_defaults
    for name, value in zip(kind._fields, event):
        if name not in defaults or value != defaults[name]:
            document[name] = value
    return document


def event_from_document(document: dict[str, Any]) -> Event:
    """The event that `event_to_document` wrote; fields of a later version are dropped. ValueError if unknown."""
    kind = EVENTS.get(str(document.get("event")))
    if kind is None:
        raise ValueError(f"unknown event {document.get('event')!r}")
    fields = {name: document[name] for name in kind._fields if name in document}
    try:
        if kind is Granted:
            fields["members"] = tuple(_read_member(*member[:5]) for member in fields["members"])
        elif kind is SetPeers:
            fields["peers"] = tuple(tuple(peer) for peer in fields["peers"])
        elif "ranges" in fields:
            fields["ranges"] = tuple(tuple(part) for part in fields["ranges"])
        event: Event = kind(**fields)
    except (TypeError, KeyError) as error:
        raise ValueError(f"incomplete event {kind.__name__}: {error}") from None
    return event


def _read_member(
    task: str, index: int, node: str, address: str, gpus: Iterable[int]
) -> tuple[str, int, str, str, tuple[int, ...]]:
    return task, index, node, address, tuple(gpus)
