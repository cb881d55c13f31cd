"""Projects the journals of a group's supervisors and Slurm's records of its native jobs to the launch's events. Pure.

If the supervisor decides, its journal has the events; Slurm's record of the end closes what the journal leaves open.
Before there is a journal, the events come from Slurm's queue and from the orders that were given to Slurm.

If the daemon decides, the events are reports only: the grant when the parts wait at the start gate, then starts, ends
and readiness. When Slurm ends a native job, the node runs that its journal leaves open have ended too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from overspan.adapters.contract import Decider
from overspan.adapters.slurm.groups.handles import GroupCursor, GroupHandle, GroupPart, PartCursor
from overspan.adapters.slurm.observation.journals import JournalLine, JournalPage
from overspan.adapters.slurm.observation.outcomes import NativeOutcome, Phase
from overspan.adapters.slurm.observation.projection import (
    BY_SLURM,
    NativeView,
    Ordered,
    is_before,
    list_reportable,
    project_hold,
)
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge, find_cause
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Granted,
    Hold,
    Launch,
    LaunchLost,
    NodeEnded,
    NodeRelaunch,
    NodeStarted,
    Preempt,
    Probed,
    Release,
    Requeue,
    Resume,
    SetTime,
    Suspend,
    TaskReady,
)

MARGIN = 15
"""Seconds after the grace period until Slurm is told to kill a cancelled group: time for its supervisor to end."""
_REPORTED = (NodeStarted, NodeEnded, Probed, TaskReady)
_OUTSIDE = (Cause.CANCEL, Cause.REQUEUE)
FAILURE = 70
"""The exit code of a supervisor that itself has failed."""
_BY_JOURNAL = (Cause.EXIT, Cause.SIGNAL, Cause.SUCCESS, Cause.SETUP)
"""Ends of the batch script by itself. Without an end in the journal they mean that the supervisor has crashed."""


class GroupProjection(NamedTuple):
    """Events in order, and the cursor behind the last."""

    events: tuple[Event, ...]
    cursor: GroupCursor


class LostAttempt(NamedTuple):
    """An attempt that was ordered into a native job that had ended, and when that was noticed."""

    attempt: int
    at: float


class LostRelaunch(NamedTuple):
    """A node run that was ordered into a native job that had ended, and when that was noticed."""

    task: str
    attempt: int
    node: int
    run: int
    at: float


class NativeEnd(NamedTuple):
    """When a native job ended; `outcome` is None, and `gone` says why, if Slurm has forgotten the job."""

    at: float
    outcome: NativeOutcome | None
    gone: str = ""


@dataclass(frozen=True)
class PartView:
    """What is known of a part: Slurm's view of its native job, its journal, and the numbered orders in its file.

    The orders are read only after Slurm has reported the end. `gone` says that Slurm has forgotten the job; else empty.
    `unshared` says that nodes and login node share no folder: lines of the journal that were not copied are lost.
    """

    view: NativeView | None
    page: JournalPage | None
    file_orders: tuple[tuple[int, Event], ...] = ()
    gone: str = ""
    unshared: bool = False

    def list_lines(self, offset: int) -> list[JournalLine]:
        """The lines of the journal behind an offset."""
        return [] if self.page is None else [line for line in self.page.lines if line.end > offset]

    @property
    def closed(self) -> bool:
        """Whether the journal has its end."""
        return self.page is not None and self.page.closed

    def find_end(self) -> NativeEnd | None:
        """The end of the native job by Slurm's record, if the journal was read to its last line after that."""
        page, view = self.page, self.view
        if page is None or page.more:
            return None
        if self.gone:
            return NativeEnd(page.asked, None, self.gone)
        if view is None or view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED) or page.asked <= view.known_at:
            return None
        return NativeEnd(view.over_at or view.end or view.asked, view.outcome)


@dataclass(frozen=True)
class GroupView:
    """The view of each part's newest native job by task, and the orders that Slurm itself carried out."""

    parts: Mapping[str, PartView]
    orders: Sequence[Ordered] = ()
    lost_attempts: Mapping[str, LostAttempt] = field(default_factory=dict)
    lost_relaunches: Collection[LostRelaunch] = ()


def project_group(handle: GroupHandle, observed: GroupView, cursor: GroupCursor) -> GroupProjection:
    """The events behind a cursor."""
    if cursor.over:
        return GroupProjection((), cursor)
    if handle.decider is Decider.DAEMON:
        return _project_reports(handle, observed, cursor)
    (part,) = cursor.parts
    return _project_journal(handle, observed.parts[part.task], part, cursor, observed.orders)


# --- the supervisor decides ------------------------------------------------------------------------------------------


def _project_journal(
    handle: GroupHandle, observed: PartView, part: PartCursor, cursor: GroupCursor, orders: Sequence[Ordered]
) -> GroupProjection:
    lines, events = observed.list_lines(part.offset), list[Event]()
    late = _list_reportable(orders, cursor, observed, bool(lines))
    if not cursor.granted:
        events += [order.event for order in late if _is_reported_early(order.event, bool(lines))]
    cursor = _note_orders(handle, cursor, late)
    if not cursor.granted and not lines and observed.view is not None:
        found, cursor = project_hold(observed.view, cursor, orders)
        events += found
    for line in lines:
        part = replace(part, offset=line.end, order=max(part.order, line.order))
        cursor = replace(cursor, granted=True, held=False)
        if isinstance(line.event, Cancel) and not line.event.task:
            cursor = _set_kill(handle, cursor, line.event)
        # Slurm stops and continues an allocation; the supervisor gets the order for its own clocks only.
        if not isinstance(line.event, (Suspend, Resume)):
            events.append(line.event)
    cursor = cursor.put(part)
    if observed.closed:
        return GroupProjection(tuple(events), cursor)
    if observed.view is not None and cursor.granted:
        found, cursor = _project_suspension(observed.view, cursor)
        events += found
    end = _project_end(handle, observed, cursor, late)
    if end:
        events += end
        cursor = replace(cursor, over=True)
    return GroupProjection(tuple(events), cursor)


def _list_reportable(
    orders: Sequence[Ordered], cursor: GroupCursor, observed: PartView, started: bool
) -> list[Ordered]:
    """The orders to report now. Stops at one that the supervisor may still report in its journal.

    If Slurm kept the group waiting after the order, it is reported now; the journal may repeat it later.
    """
    found: list[Ordered] = []
    started, view, end = started or cursor.granted, observed.view, observed.find_end()
    closing = end is not None and end.outcome is not None
    for order in list_reportable(orders, cursor.orders, started or closing):
        waits = view is not None and view.outcome.phase is Phase.QUEUED and view.asked > order.done_at
        over = view is not None and view.outcome.phase is Phase.ENDED
        if _is_for_supervisor(order.event) and not (started or waits or over):
            break
        found.append(order)
    return found


def _is_for_supervisor(event: Event) -> bool:
    """Whether an order is about a part of the group, which only the supervisor can carry out."""
    return isinstance(event, SetTime) or (isinstance(event, Cancel) and bool(event.task))


def _is_reported_early(event: Event, started: bool) -> bool:
    """Whether to report an order on a waiting group at once; one that ends the group is reported with its end."""
    return not started if _is_for_supervisor(event) else not isinstance(event, (Cancel, Expire))


def _note_orders(handle: GroupHandle, cursor: GroupCursor, orders: Sequence[Ordered]) -> GroupCursor:
    for order in orders:
        if isinstance(order.event, (Hold, Release)) and not cursor.granted:
            cursor = replace(cursor, held=isinstance(order.event, Hold))
        if isinstance(order.event, Cancel) and not order.event.task:
            cursor = _set_kill(handle, cursor, order.event)
        cursor = replace(cursor, orders=max(cursor.orders, order.number))
    return cursor


def _set_kill(handle: GroupHandle, cursor: GroupCursor, event: Cancel) -> GroupCursor:
    grace = handle.grace if event.grace is None else event.grace
    return replace(cursor, kill_at=int(event.at) + grace + MARGIN)


def _project_suspension(view: NativeView, cursor: GroupCursor) -> tuple[list[Event], GroupCursor]:
    suspended = view.outcome.phase is Phase.SUSPENDED
    if suspended == cursor.suspended or view.outcome.phase is Phase.ENDED:
        return [], cursor
    event: Event = Suspend(view.asked, BY_SLURM) if suspended else Resume(view.asked, BY_SLURM)
    return [event], replace(cursor, suspended=suspended)


def _project_end(handle: GroupHandle, observed: PartView, cursor: GroupCursor, late: Sequence[Ordered]) -> list[Event]:
    """The end of a launch by Slurm's record, if its journal has none."""
    end, (part,) = observed.find_end(), cursor.parts
    if end is None:
        return []
    if end.outcome is None:
        return [LaunchLost(end.at, handle.launch, Cause.LAUNCH.value, end.gone)]
    judge = _judge_unshared_loss if observed.unshared else _judge_loss
    lost = LaunchLost(end.at, handle.launch, *judge(handle, end.outcome))
    file_orders = [event for number, event in observed.file_orders if number > part.order]
    file_orders += [order.event for order in late if isinstance(order.event, Expire) and order.event not in file_orders]
    ending = [event for event in file_orders if _ends(event) and not _is_moot(event, lost, late)]
    if not cursor.granted and any(isinstance(event, (Cancel, Expire)) for event in ending):
        # Nothing was granted, so nothing was lost: the order itself is the end.
        return ending
    return [*ending, lost]


def _ends(event: Event) -> bool:
    """Whether an order ends the launch as a whole."""
    return isinstance(event, (Requeue, Preempt, Expire)) or (isinstance(event, Cancel) and not event.task)


def _judge_loss(handle: GroupHandle, outcome: NativeOutcome) -> tuple[str, str]:
    """The cause of a loss, and its description."""
    if outcome.phase is Phase.REQUEUED:
        return Cause.NODE.value, "Slurm has requeued the allocation; it is submitted again"
    cause = outcome.cause or Cause.LAUNCH
    if cause in _BY_JOURNAL:
        log = f"{handle.folder}/supervisor.{handle.launch}.log"
        status = f"signal {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
        # A killed supervisor is like a lost node, and a new launch may succeed; one that exits would do so again.
        lost = Cause.NODE if outcome.signal else Cause.LAUNCH
        return lost.value, f"the supervisor ended with {status} before the job did; see {log}"
    return cause.value, outcome.detail


def _judge_unshared_loss(handle: GroupHandle, outcome: NativeOutcome) -> tuple[str, str]:
    """As `_judge_loss`, but without a shared folder an open journal may only mean that its end was not copied."""
    if outcome.phase is Phase.REQUEUED or outcome.cause not in (Cause.SUCCESS, Cause.EXIT):
        return _judge_loss(handle, outcome)
    what = f"the batch script ended with exit code {outcome.exit_code}; its record stayed on the node"
    local = f"/tmp/overspan-{handle.parts[0].native}.log"
    logs = f"{handle.folder}/supervisor.{handle.launch}.log, or {local} on its first node"
    return outcome.cause.value, f"{what}, so how each task ended is not known; see {logs}"


def _is_moot(event: Event, lost: LaunchLost, orders: Sequence[Ordered]) -> bool:
    """Whether the group had ended for good before the order; a group that would be submitted again is cancelled."""
    final = CONSEQUENCES[Cause(lost.cause)].charge is not Charge.RECOVERIES
    if not final or lost.cause == Cause.CANCEL.value or not isinstance(event, Cancel):
        return False
    order = next((order for order in orders if order.event == event), Ordered(0, event, event.at))
    return is_before(lost.at, order)


# --- the daemon decides ----------------------------------------------------------------------------------------------


def _project_reports(handle: GroupHandle, observed: GroupView, cursor: GroupCursor) -> GroupProjection:
    events: list[Event] = [order.event for order in observed.orders if order.number > cursor.orders]
    cursor = replace(cursor, orders=max([cursor.orders, *(order.number for order in observed.orders)]))
    if not cursor.granted:
        grant = _project_grant(handle, observed, cursor)
        events += grant.events
        cursor = grant.cursor
    if not cursor.granted or cursor.over:
        return GroupProjection(tuple(events), cursor)
    impatient = _judge_patience(handle, observed, cursor)
    if impatient is not None:
        return GroupProjection((*events, impatient), replace(cursor, over=True))
    for part in handle.parts:
        place, reports = _project_part(part, observed.parts.get(part.task), cursor.part(part.task))
        events += reports
        lost = observed.lost_attempts.get(part.task)
        if lost is not None and lost.attempt > place.attempt:
            events += [_end_run(lost.at, part.task, lost.attempt, node) for node in range(part.nodes)]
            place = replace(place, attempt=lost.attempt, over=True)
        cursor = cursor.put(place)
    events += [_end_run(one.at, one.task, one.attempt, one.node, one.run) for one in sorted(observed.lost_relaunches)]
    return GroupProjection(tuple(events), cursor)


def _project_grant(handle: GroupHandle, observed: GroupView, cursor: GroupCursor) -> GroupProjection:
    """The grant, when every native job of the beginning waits at its start gate, or the loss of the launch."""
    at_gate: dict[str, JournalLine] = {}
    for part in handle.parts:
        part_view = observed.parts.get(part.task)
        if part_view is None:
            continue
        lines = part_view.list_lines(-1)
        if lines and isinstance(lines[0].event, Granted):
            at_gate[part.task] = lines[0]
        lost = _judge_early(handle, part.task, part_view)
        if lost is not None:
            return GroupProjection((lost,), replace(cursor, over=True))
    if not at_gate or (handle.together and len(at_gate) < sum(not part.deferred for part in handle.parts)):
        return GroupProjection((), cursor)
    granted = [line.event for line in at_gate.values() if isinstance(line.event, Granted)]
    members = tuple(member for event in granted for member in event.members)
    for task, line in at_gate.items():
        cursor = cursor.put(replace(cursor.part(task), offset=line.end))
    partition = ",".join(dict.fromkeys(event.partition for event in granted if event.partition))
    event = Granted(max(event.at for event in granted), members, partition)
    return GroupProjection((event,), replace(cursor, granted=True))


def _judge_early(handle: GroupHandle, task: str, part_view: PartView) -> LaunchLost | None:
    """The loss of a launch if one of its native jobs has ended before all had their nodes."""
    if part_view.page is not None and part_view.closed:
        text = f"the other jobs of the set did not start in time, so that of {task} has given its nodes back"
        return LaunchLost(part_view.page.asked, handle.launch, Cause.NEVER_STARTED.value, text)
    end = part_view.find_end()
    if end is None:
        return None
    if end.outcome is None:
        # Its end is not known, but without an order to launch it has run no user code.
        return LaunchLost(end.at, handle.launch, Cause.NODE.value, end.gone)
    cause = end.outcome.cause or Cause.LAUNCH
    if cause is Cause.REQUEUE:
        detail = f"Slurm has requeued the job of the task {task} before the set had started; all are submitted again"
        return LaunchLost(end.at, handle.launch, Cause.NODE.value, detail)
    cause = (Cause.NODE if end.outcome.signal else Cause.LAUNCH) if cause in _BY_JOURNAL else cause
    detail = end.outcome.detail or f"Slurm ended the job of the task {task} before the set had started"
    return LaunchLost(end.at, handle.launch, cause.value, detail)


def _judge_patience(handle: GroupHandle, observed: GroupView, cursor: GroupCursor) -> LaunchLost | None:
    """The loss of a launch whose deferred task has waited too long for nodes, while others hold theirs.

    What is left of the group is submitted again, and then it asks for everything at once. Tasks that start
    independently hold nothing for each other.
    """
    if not handle.together:
        return None
    holders = [place for place in cursor.parts if not place.over and _has_nodes(observed, place.task)]
    if not holders or any(place.open and place.task in handle.primaries for place in holders):
        # Nobody holds nodes for nothing: what a primary task does is not given up for one that waits.
        return None
    for part in handle.parts:
        place, part_view = cursor.part(part.task), observed.parts.get(part.task)
        if not part.deferred or place.over or part_view is None or part_view.list_lines(-1):
            continue
        view = part_view.view
        if view is None or view.outcome.phase is not Phase.QUEUED or view.asked < place.since + handle.patience:
            continue
        text = (
            f"the job of {part.task} has waited for nodes for {handle.patience} s ({view.reason}) while the others "
            "held theirs: these are given back, and all that is left is submitted again together"
        )
        return LaunchLost(view.asked, handle.launch, Cause.NEVER_STARTED.value, text)
    return None


def _has_nodes(observed: GroupView, task: str) -> bool:
    part_view = observed.parts.get(task)
    view = None if part_view is None else part_view.view
    return view is not None and view.outcome.phase is Phase.RUNNING


def _project_part(part: GroupPart, part_view: PartView | None, place: PartCursor) -> tuple[PartCursor, list[Event]]:
    """The events in a native job's journal behind the cursor, and the ends of node runs that it leaves open."""
    events: list[Event] = []
    if part_view is None or place.over:
        return place, events
    for line in part_view.list_lines(place.offset):
        place = _note(part, replace(place, offset=line.end, order=max(place.order, line.order)), line.event)
        # A replacement reports its own grant, with its nodes; so does a task that starts later than the others.
        if isinstance(line.event, (*_REPORTED, Granted)):
            events.append(line.event)
    if part_view.closed:
        return replace(place, over=True), events
    end = part_view.find_end()
    if end is None:
        return place, events
    for number, event in part_view.file_orders:
        if number > place.order:
            place = _note(part, place, event)
    events += [_project_loss(part, place, run, end, part_view.unshared) for run in place.open]
    return replace(place, open=(), over=True), events


def _project_loss(
    part: GroupPart, place: PartCursor, run: tuple[int, int], end: NativeEnd, unshared: bool
) -> NodeEnded:
    """The end of a node run that the journal leaves open."""
    outcome = end.outcome
    told = outcome is not None and outcome.cause in (Cause.SUCCESS, Cause.EXIT) and outcome.exit_code != FAILURE
    if unshared and told and outcome is not None:
        # The supervisor's exit status is that of the task; only its record was not copied.
        detail = f"the supervisor ended with exit code {outcome.exit_code}; its record stayed on the node"
        return NodeEnded(end.at, part.task, place.attempt, *run, exit_code=outcome.exit_code, detail=detail)
    cause, detail = _describe_loss(end)
    return NodeEnded(end.at, part.task, place.attempt, *run, signal=9, cause=cause, detail=detail)


def _end_run(at: float, task: str, attempt: int, node: int, run: int = 0) -> NodeEnded:
    detail = "the job of this task had ended before the attempt could start"
    return NodeEnded(at, task, attempt, node, run, signal=9, cause=Cause.NODE.value, detail=detail)


def _note(part: GroupPart, place: PartCursor, event: Event) -> PartCursor:
    """The cursor after an event: its attempt and its open node runs."""
    if isinstance(event, Launch):
        return replace(place, attempt=event.attempt, open=tuple((node, 0) for node in range(part.nodes)))
    if isinstance(event, NodeRelaunch):
        return replace(place, open=(*place.open, (event.node, event.run)))
    if isinstance(event, NodeEnded):
        still_open = tuple(one for one in place.open if one != (event.node, event.run))
        cause = find_cause(event.cause)
        # A native job that has lost a node runs no further attempt.
        spent = cause is not None and CONSEQUENCES[cause].charge is Charge.RECOVERIES and not still_open
        return replace(place, open=still_open, over=place.over or spent)
    return place


def _describe_loss(end: NativeEnd) -> tuple[str, str]:
    """The cause of a loss, and its description. A cancel that did not come through Overspan counts as a lost node."""
    if end.outcome is None:
        return Cause.NODE.value, end.gone
    cause = end.outcome.cause or Cause.NODE
    if cause in _OUTSIDE:
        return Cause.NODE.value, "the job of this task was cancelled on the cluster, outside of Overspan"
    if cause in _BY_JOURNAL:
        return Cause.NODE.value, "the supervisor of this task ended before the task did"
    return cause.value, end.outcome.detail
