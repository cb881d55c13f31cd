"""Projects the journals of a set's native jobs, and Slurm's records of these, to the events of a launch. Pure.

The daemon decides, so the events are reports only: the grant when all wait at the start gate, then starts, ends and
readiness. When Slurm ends a native job, the node runs that its journal leaves open have ended too.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from overspan.adapters.slurm.groups.projection import GroupView
from overspan.adapters.slurm.observation.journals import JournalLine
from overspan.adapters.slurm.observation.outcomes import NativeOutcome, Phase
from overspan.adapters.slurm.observation.projection import Ordered
from overspan.adapters.slurm.sets.handles import PartCursor, SetCursor, SetHandle, SetPart
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge, find_cause
from overspan.bridge.model.events import (
    Event,
    Granted,
    Launch,
    LaunchLost,
    NodeEnded,
    NodeRelaunch,
    NodeStarted,
    Probed,
    TaskReady,
)

_REPORTED = (NodeStarted, NodeEnded, Probed, TaskReady)
_OUTSIDE = (Cause.CANCEL, Cause.REQUEUE)
_BY_JOURNAL = (Cause.EXIT, Cause.SIGNAL, Cause.SUCCESS, Cause.SETUP)


class SetProjection(NamedTuple):
    """Events in order, and the cursor behind the last."""

    events: tuple[Event, ...]
    cursor: SetCursor


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


@dataclass(frozen=True)
class SetView:
    """The view of each task's newest native job, and the orders that Slurm itself carried out."""

    members: Mapping[str, GroupView]
    orders: Sequence[Ordered] = ()
    lost_attempts: Mapping[str, LostAttempt] = field(default_factory=dict)
    lost_relaunches: Collection[LostRelaunch] = ()


def project_set(handle: SetHandle, observed: SetView, cursor: SetCursor) -> SetProjection:
    """The events behind a cursor."""
    if cursor.over:
        return SetProjection((), cursor)
    events: list[Event] = [order.event for order in observed.orders if order.number > cursor.orders]
    cursor = replace(cursor, orders=max([cursor.orders, *(order.number for order in observed.orders)]))
    if not cursor.granted:
        grant = _project_grant(handle, observed, cursor)
        events += grant.events
        cursor = grant.cursor
    if not cursor.granted or cursor.over:
        return SetProjection(tuple(events), cursor)
    members = []
    for part in handle.parts:
        member, reports = _project_member(part, observed.members.get(part.task), cursor.member(part.task))
        events += reports
        lost = observed.lost_attempts.get(part.task)
        if lost is not None and lost.attempt > member.attempt:
            events += _end_lost_attempt(part, lost)
            member = replace(member, attempt=lost.attempt, over=True)
        members.append(member)
    cursor = replace(cursor, members=tuple(members))
    events += [_end_run(one.at, one.task, one.attempt, one.node, one.run) for one in sorted(observed.lost_relaunches)]
    return SetProjection(tuple(events), cursor)


def _project_grant(handle: SetHandle, observed: SetView, cursor: SetCursor) -> SetProjection:
    """The grant, when every native job waits at its start gate, or the loss of the launch."""
    at_gate: dict[str, JournalLine] = {}
    for part in handle.parts:
        member_view = observed.members.get(part.task)
        lines = member_view.page.lines if member_view is not None and member_view.page is not None else ()
        if lines and isinstance(lines[0].event, Granted):
            at_gate[part.task] = lines[0]
        lost = None if member_view is None else _judge_early(handle, part.task, member_view)
        if lost is not None:
            return SetProjection((lost,), replace(cursor, over=True))
    if not at_gate or (handle.together and len(at_gate) < len(handle.parts)):
        return SetProjection((), cursor)
    granted = [line.event for line in at_gate.values() if isinstance(line.event, Granted)]
    members = tuple(member for event in granted for member in event.members)
    places = tuple(
        replace(member, offset=at_gate[member.task].end) if member.task in at_gate else member
        for member in cursor.members
    )
    partition = ",".join(dict.fromkeys(event.partition for event in granted if event.partition))
    event = Granted(max(event.at for event in granted), members, partition)
    return SetProjection((event,), replace(cursor, members=places, granted=True))


def _judge_early(handle: SetHandle, task: str, member_view: GroupView) -> LaunchLost | None:
    """The loss of a launch if one of its native jobs has ended before all had their nodes."""
    page, view = member_view.page, member_view.view
    if page is None:
        return None
    if page.closed:
        text = f"the other jobs of the set did not start in time, so that of {task} has given its nodes back"
        return LaunchLost(page.asked, handle.launch, Cause.NEVER_STARTED.value, text)
    if member_view.gone:
        # Its end is not known, but without an order to launch it has run no user code.
        return LaunchLost(page.asked, handle.launch, Cause.NODE.value, member_view.gone)
    if view is None or view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED) or page.asked <= view.known_at:
        return None
    cause = view.outcome.cause or Cause.LAUNCH
    if cause is Cause.REQUEUE:
        detail = f"Slurm has requeued the job of the task {task} before the set had started; all are submitted again"
        return LaunchLost(view.over_at or view.asked, handle.launch, Cause.NODE.value, detail)
    cause = (Cause.NODE if view.outcome.signal else Cause.LAUNCH) if cause in _BY_JOURNAL else cause
    detail = view.outcome.detail or f"Slurm ended the job of the task {task} before the set had started"
    return LaunchLost(view.end or view.asked, handle.launch, cause.value, detail)


def _project_member(part: SetPart, member_view: GroupView | None, member: PartCursor) -> tuple[PartCursor, list[Event]]:
    """The events in a native job's journal behind the cursor, and the ends of node runs that it leaves open."""
    events: list[Event] = []
    if member_view is None or member.over:
        return member, events
    lines = (
        [line for line in member_view.page.lines if line.end > member.offset] if member_view.page is not None else []
    )
    for line in lines:
        member = replace(member, offset=line.end, order=max(member.order, line.order))
        member = _note(part, member, line.event)
        # A replacement reports its own grant, with its nodes; so does a task that starts later than the others.
        if isinstance(line.event, (*_REPORTED, Granted)):
            events.append(line.event)
    if member_view.page is not None and member_view.page.closed:
        return replace(member, over=True), events
    lost = _judge_loss(member_view)
    if lost is None:
        return member, events
    at, cause, detail = lost
    for number, event in member_view.file_orders:
        if number > member.order:
            member = _note(part, member, event)
    events += [
        NodeEnded(at, part.task, member.attempt, node, run, signal=9, cause=cause, detail=detail)
        for node, run in member.open
    ]
    return replace(member, open=(), over=True), events


def _end_lost_attempt(part: SetPart, lost: LostAttempt) -> list[Event]:
    return [_end_run(lost.at, part.task, lost.attempt, node) for node in range(part.nodes)]


def _end_run(at: float, task: str, attempt: int, node: int, run: int = 0) -> NodeEnded:
    detail = "the job of this task had ended before the attempt could start"
    return NodeEnded(at, task, attempt, node, run, signal=9, cause=Cause.NODE.value, detail=detail)


def _note(part: SetPart, member: PartCursor, event: Event) -> PartCursor:
    """The cursor after an event: its attempt and its open node runs."""
    if isinstance(event, Launch):
        return replace(member, attempt=event.attempt, open=tuple((node, 0) for node in range(part.nodes)))
    if isinstance(event, NodeRelaunch):
        return replace(member, open=(*member.open, (event.node, event.run)))
    if isinstance(event, NodeEnded):
        still_open = tuple(one for one in member.open if one != (event.node, event.run))
        cause = find_cause(event.cause)
        # A native job that has lost a node runs no further attempt.
        spent = cause is not None and CONSEQUENCES[cause].charge is Charge.RECOVERIES and not still_open
        return replace(member, open=still_open, over=member.over or spent)
    return member


def _judge_loss(member_view: GroupView) -> tuple[float, str, str] | None:
    """When and why a native job ended whose journal has no end; None while it may still run."""
    page, view = member_view.page, member_view.view
    if page is None or page.more:
        return None
    if member_view.gone:
        return page.asked, Cause.NODE.value, member_view.gone
    if view is None or view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED) or page.asked <= view.known_at:
        return None
    return view.over_at or view.end or view.asked, *_describe_loss(view.outcome)


def _describe_loss(outcome: NativeOutcome) -> tuple[str, str]:
    """The cause of a loss, and its description. A cancel that did not come through Overspan counts as a lost node."""
    cause = outcome.cause or Cause.NODE
    if cause in _OUTSIDE:
        return Cause.NODE.value, "the job of this task was ended by somebody on the cluster"
    if cause in _BY_JOURNAL:
        return Cause.NODE.value, "the supervisor of this task ended before the task did"
    return cause.value, outcome.detail
