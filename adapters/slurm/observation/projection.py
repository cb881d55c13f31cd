"""Projects Slurm's records of a native job to the events of a launch. Pure: the same records give the same events.

Slurm decides about a single job; the events repeat its decisions: granted, started, ended with a cause, requeued. Times
are Slurm's own, so that a repeated projection gives the same events.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

from overspan.adapters.slurm.commands.sacct import AccountingRecord
from overspan.adapters.slurm.commands.squeue import QueueRecord
from overspan.adapters.slurm.groups.handles import GroupCursor, NativeJob
from overspan.adapters.slurm.handles import ENDED, GRANTED, NOTHING, STARTED, Cursor, Handle
from overspan.adapters.slurm.observation.outcomes import (
    NativeAttempt,
    NativeOutcome,
    Phase,
    end_events,
    judge,
    restart_cause,
)
from overspan.adapters.slurm.observation.requeues import Future, foresee, is_back, is_held
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Granted,
    Hold,
    Launch,
    LaunchLost,
    NodeEnded,
    NodeStarted,
    Release,
    Requeue,
    Resume,
    Suspend,
)

KEPT_SECONDS = 30.0
"""Seconds for which slurmctld keeps an ended job's record at least, below any usual MinJobAge (slurm.conf)."""
BY_SLURM = "slurm"
"""The author of an order that was given to Slurm directly."""
UNSTARTED = "Slurm gave it back without having run anything"
_STOPPING = (9, 15)


@dataclass(frozen=True)
class NativeView:
    """What is known of one run of a native job. `over_at` is when Slurm requeued it (None: never), `why` the cause.

    `asked` and `answered_at` are when the query began and when it was answered (this machine's time). The answer does
    not show orders given after `asked`. For an end, `answered_at` is the first answer that showed it: a journal read
    after that has all its lines. `waits` says that this run is over and Slurm will run the job again, so a cancel has
    not reached it. `native` is an element's own id, once Slurm has given it one.
    """

    outcome: NativeOutcome
    reason: str
    nodes: tuple[str, ...]
    start: float | None
    end: float | None
    limit: int | None
    asked: float
    over_at: float | None = None
    why: Cause = Cause.REQUEUE
    waits: bool = False
    native: int | None = None
    answered_at: float = 0.0
    partition: str = ""

    @property
    def known_at(self) -> float:
        """The time by which the answer was true: Slurm made it at some moment between query and answer."""
        return self.answered_at or self.asked


def move_view(view: NativeView, seconds: float, now: float) -> NativeView:
    """The view as it were if this machine's clock had always been as it is since it was set; never from the future."""
    answered_at = min(now, view.answered_at + seconds) if view.answered_at else 0.0
    return replace(view, asked=min(now, view.asked + seconds), answered_at=answered_at)


AnyCursor = TypeVar("AnyCursor", Cursor, GroupCursor)


class Projection(NamedTuple):
    """Events in order, and the cursor behind the last."""

    events: tuple[Event, ...]
    cursor: Cursor


class Ordered(NamedTuple):
    """An order that was carried out: its number among the launch's orders, and when (this machine's clock).

    `cluster_time` is the cluster's own clock just before; None where that was not read.
    """

    number: int
    event: Event
    done_at: float
    cluster_time: float | None = None


def view_queue(record: QueueRecord, run: int, runs: Sequence[AccountingRecord], asked: float) -> NativeView:
    """The view of a run: from squeue's record, or from the accounting if the job is in a later run already."""
    outcome = judge(record.state, record.reason, record.exit)
    if record.restarts > run:
        # While the former run is still ending, the record has its times, and the accounting lacks the next run.
        ending = outcome.phase is Phase.ENDING and record.restarts == run + 1
        again = asked if ending else record.submit or asked
        if outcome.phase is Phase.ENDED and record.start is not None and record.start >= again:
            # Cancelled while the former run was ending: the job never waited again, and shows that run's times.
            same = run < len(runs) and runs[run].start == record.start
            again = (record.end or asked) if same else record.start
        # The accounting gets the next run only when it may begin, minutes after the requeue: until then the last
        # record is the former run's.
        past = runs[run] if run < len(runs) and (run < len(runs) - 1 or (runs[run].submit or again) < again) else None
        return _view_past(past, again, asked, foresee(record.state, bool(record.nodes)) is not Future.OVER)
    if is_back(record, run):
        outcome = NativeOutcome(Phase.QUEUED, detail=outcome.detail)
    # A requeued job that waits still shows the nodes of its former run, and may do so while it is COMPLETING.
    waits = outcome.phase is Phase.QUEUED
    nodes = () if waits or (run and outcome.phase is Phase.ENDING) else record.nodes
    view = NativeView(outcome, record.reason, nodes, record.start, record.end, record.limit.seconds, asked)
    view = replace(view, partition=record.partition)
    # Waiting elements share the array's id, and the last one to start keeps it: an id counts once there are nodes.
    own = record.array_index is not None and outcome.phase is not Phase.QUEUED and bool(record.nodes)
    return replace(view, native=record.raw) if own else view


def view_unstarted(view: NativeView) -> NativeView:
    """The view of a run in which Slurm started no program: it counts as a failed boot, not as the program's failure."""
    return replace(view, outcome=NativeOutcome(Phase.ENDED, Cause.BOOT, detail=UNSTARTED), nodes=(), start=None)


def view_accounts(runs: Sequence[AccountingRecord], run: int, asked: float) -> NativeView | None:
    """The view of a run from the accounting alone. `runs` are of one job, oldest first; None if that run is missing."""
    if run >= len(runs):
        return None
    record = runs[run]
    if run < len(runs) - 1:
        return _view_past(record, runs[run + 1].submit or asked, asked, False)
    outcome = judge(record.state, record.reason, record.exit)
    view = NativeView(outcome, record.reason, record.nodes, record.start, record.end, record.limit.seconds, asked)
    return replace(view, partition=record.partition)


def view_ended_array(record: QueueRecord | None, runs: Sequence[AccountingRecord], asked: float) -> NativeView | None:
    """The view of an element that neither listing has, from the record of its array.

    An array that was cancelled as a whole before any start is kept as one job without indices (measured on 22.05).
    """
    found: list[QueueRecord | AccountingRecord] = [*runs, *([record] if record is not None else [])]
    for one in found:
        outcome = judge(one.state, one.reason, one.exit)
        if one.array_index is None and not one.nodes and outcome.phase is Phase.ENDED and outcome.cause is Cause.CANCEL:
            return NativeView(outcome, one.reason, (), None, one.end, None, asked)
    return None


def _view_past(record: AccountingRecord | None, again: float, asked: float, waits: bool) -> NativeView:
    if record is None:
        # Without accounting all that is known of the run is that it is over.
        view = NativeView(NativeOutcome(Phase.REQUEUED, Cause.REQUEUE), "None", (), None, None, None, asked, again)
    else:
        end = min(record.end or again, again)
        cause = restart_cause(record.state)
        outcome = NativeOutcome(Phase.REQUEUED, cause)
        view = NativeView(outcome, "None", record.nodes, record.start, end, None, asked, end, cause)
    return replace(view, waits=waits)


def project(
    handle: Handle, view: NativeView, cursor: Cursor, orders: Sequence[Ordered], addresses: Mapping[str, str]
) -> Projection:
    """The events behind a cursor: orders that were carried out, and what Slurm has done."""
    events: list[Event] = []
    if cursor.phase == ENDED:
        return Projection((), cursor)
    ran = bool(view.nodes) or view.over_at is not None
    late = list_reportable(orders, cursor.orders, ran or view.outcome.phase is Phase.ENDED)
    if cursor.phase == NOTHING and not ran and view.outcome.phase in (Phase.QUEUED, Phase.ENDING):
        late, cursor = _hold_back(late, view, cursor)
    # Holds and the like of a waiting job come before its start; orders to end it come behind the start.
    early = [order for order in late if cursor.phase == NOTHING and not isinstance(order.event, (Cancel, Expire))]
    rest = [order for order in late if order not in early and not _is_moot(order, view)]
    events += [order.event for order in early]
    cursor = _note_orders(cursor, late, handle)
    if cursor.phase == NOTHING and not ran:
        found, cursor = project_hold(view, cursor, orders)
        events += found
    if ran and view.outcome.phase is not Phase.QUEUED:
        found, cursor = _project_start(handle, view, cursor, addresses)
        events += found
    events += [order.event for order in rest]
    if cursor.kill_at and view.waits:
        # Cancelled, but requeued by Slurm: no end is reported until the job has left the queue.
        return Projection(tuple(events), cursor)
    if view.outcome.phase in (Phase.ENDED, Phase.REQUEUED):
        events += _project_end(handle, view, cursor, ran)
        cursor = cursor.at(ENDED)
    elif cursor.phase == STARTED:
        found, cursor = _project_suspension(view, cursor)
        events += found
    return Projection(tuple(events), cursor)


def list_reportable(orders: Sequence[Ordered], reported: int, settled: bool) -> list[Ordered]:
    """Orders newer than `reported`. Without `settled` it stops at an unconfirmed withdrawal.

    Reporting a withdrawal too early could start the job on two clusters.
    """
    late = [order for order in orders if order.number > reported]
    waits = (place for place, order in enumerate(late) if isinstance(order.event, Expire))
    return late if settled else late[: next(waits, len(late))]


def _hold_back(late: Sequence[Ordered], view: NativeView, cursor: Cursor) -> tuple[list[Ordered], Cursor]:
    """The orders before a cancel of a waiting job, and a cursor whose `kill_at` makes the cancel be sent again.

    The cancel is reported only when the queue shows its effect. If a query that began after the cancel still shows the
    job waiting, scancel missed it, as it does while a former run is ending: scancel(1) has no filter for that state.
    An older query proves nothing.
    """
    place = next((place for place, order in enumerate(late) if isinstance(order.event, Cancel)), len(late))
    if place < len(late) and late[place].done_at < view.asked:
        cursor = replace(cursor, kill_at=int(view.asked))
    return list(late[:place]), cursor


def _note_orders(cursor: Cursor, orders: Sequence[Ordered], handle: Handle) -> Cursor:
    for order in orders:
        if isinstance(order.event, (Hold, Release)):
            cursor = replace(cursor, held=isinstance(order.event, Hold))
        if isinstance(order.event, Cancel):
            grace = handle.grace if order.event.grace is None else order.event.grace
            cursor = replace(cursor, kill_at=int(order.event.at) + grace + 1)
        cursor = replace(cursor, orders=max(cursor.orders, order.number))
    return cursor


def project_hold(view: NativeView, cursor: AnyCursor, orders: Sequence[Ordered]) -> tuple[list[Event], AnyCursor]:
    """The events of holds and releases that were given to Slurm directly."""
    if view.outcome.phase is not Phase.QUEUED or any(order.done_at >= view.asked for order in orders):
        return [], cursor
    held = is_held(view.reason)
    if held == cursor.held:
        return [], cursor
    event = Hold(view.asked, BY_SLURM, view.reason == "JobHeldAdmin") if held else Release(view.asked, BY_SLURM)
    return [event], replace(cursor, held=held)


def _project_start(
    handle: Handle, view: NativeView, cursor: Cursor, addresses: Mapping[str, str]
) -> tuple[list[Event], Cursor]:
    at = view.start or view.end or view.over_at or view.asked
    events: list[Event] = []
    if cursor.phase == NOTHING:
        names = view.nodes or ("",)
        members = tuple((handle.task, index, name, addresses.get(name, ""), ()) for index, name in enumerate(names))
        events += [Granted(at, members, view.partition), Launch(at, handle.task, handle.attempt)]
        cursor = replace(cursor.at(GRANTED), held=False)
    if cursor.phase == GRANTED and view.outcome.phase is not Phase.STARTING:
        events += [NodeStarted(at, handle.task, handle.attempt, node) for node in range(handle.nodes)]
        cursor = cursor.at(STARTED)
    return events, cursor


def _project_suspension(view: NativeView, cursor: Cursor) -> tuple[list[Event], Cursor]:
    suspended = view.outcome.phase is Phase.SUSPENDED
    if suspended == cursor.suspended:
        return [], cursor
    event: Event = Suspend(view.asked, BY_SLURM) if suspended else Resume(view.asked, BY_SLURM)
    return [event], replace(cursor, suspended=suspended)


def _is_moot(order: Ordered, view: NativeView) -> bool:
    """Whether the job ended by itself before the order to end it came."""
    if view.outcome.phase is not Phase.ENDED or view.outcome.cause is Cause.CANCEL or view.end is None:
        return False
    by_order = view.outcome.signal in _STOPPING or view.outcome.exit_code - 128 in _STOPPING
    return is_before(view.end, order) and not by_order


def is_before(end: float, order: Ordered) -> bool:
    """Whether an end, which Slurm reports in whole seconds, certainly came before an order was carried out."""
    return end + 1 <= (order.event.at if order.cluster_time is None else order.cluster_time)


def _project_end(handle: Handle, view: NativeView, cursor: Cursor, ran: bool) -> list[Event]:
    if view.over_at is not None:
        # A requeue by Slurm uses up none of the user's retries. A hold in the queue is reported with the next launch,
        # which is the same native job.
        lost = LaunchLost(view.over_at, handle.launch, view.why.value, "requeued by Slurm")
        return [lost] if cursor.kill_at else [Requeue(view.over_at, BY_SLURM), lost]
    at = view.end or view.asked
    ended = list(end_events(view.outcome, NativeAttempt(handle.task, handle.attempt, handle.launch, handle.nodes), at))
    if not ran and any(isinstance(event, NodeEnded) for event in ended):
        cause = view.outcome.cause or Cause.LAUNCH
        return [LaunchLost(at, handle.launch, cause.value, view.outcome.detail)]
    return ended


def view_cancelled_element(
    handle: Handle, last: NativeView | None, orders: Sequence[Ordered], asked: float
) -> NativeView | None:
    """The view of an element that was cancelled while it waited; None where that is not certain.

    Such an element leaves no record (measured on 22.05). One that had started has a record for MinJobAge, so its
    absence is a proof only within KEPT_SECONDS after the cancel.
    """
    if handle.index is None or handle.run or last is None or last.outcome.phase is not Phase.QUEUED:
        return None
    cancels = [order.done_at for order in orders if isinstance(order.event, Cancel)]
    if not any(done_at < asked < done_at + KEPT_SECONDS for done_at in cancels):
        return None
    return NativeView(NativeOutcome(Phase.ENDED, Cause.CANCEL), "None", (), None, None, None, asked)


def project_gone(handle: Handle | NativeJob, at: float, accounting: bool) -> LaunchLost:
    """The end of a launch that Slurm has no trace of. It is not run again, since it may have run to its end."""
    missing = "Slurm's accounting has no record of it" if accounting else "this cluster keeps no accounting"
    detail = f"Slurm no longer knows the job {handle.name}, and {missing}: how it ended is not known"
    return LaunchLost(at, handle.launch, Cause.LAUNCH.value, detail)
