"""Projects the journals of a set's native jobs, and Slurm's records of these, to the events of a launch. Pure.

The daemon decides, so this gives reports only: the grant when all wait at the start gate, then starts, ends, ready. A
native job that Slurm ends closes the node runs that its journal has left open, and nothing else.
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

_TOLD = (NodeStarted, NodeEnded, Probed, TaskReady)
_OUTSIDE = (Cause.CANCEL, Cause.REQUEUE)
_BY_JOURNAL = (Cause.EXIT, Cause.SIGNAL, Cause.SUCCESS, Cause.SETUP)


class SetProjection(NamedTuple):
    """Events in their order, and the cursor behind them."""

    events: tuple[Event, ...]
    cursor: SetCursor


class LostAttempt(NamedTuple):
    """An attempt that was to start in a native job that is gone, and when that was found out."""

    attempt: int
    at: float


class LostRelaunch(NamedTuple):
    """A node run that was to start in a native job that is gone, and when that was found out."""

    task: str
    attempt: int
    node: int
    run: int
    at: float


@dataclass(frozen=True)
class SetView:
    """What was seen of each task's newest native job, and the orders that were carried out by Slurm itself."""

    members: Mapping[str, GroupView]
    orders: Sequence[Ordered] = ()
    missed: Mapping[str, LostAttempt] = field(default_factory=dict)
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
        member, told_events = _project_member(part, observed.members.get(part.task), cursor.member(part.task))
        events += told_events
        missed = observed.missed.get(part.task)
        if missed is not None and missed.attempt > member.attempt:
            events += _end_missed(part, missed)
            member = replace(member, attempt=missed.attempt, over=True)
        members.append(member)
    cursor = replace(cursor, members=tuple(members))
    events += [
        _end_run(lost.at, lost.task, lost.attempt, lost.node, lost.run) for lost in sorted(observed.lost_relaunches)
    ]
    return SetProjection(tuple(events), cursor)


def _project_grant(handle: SetHandle, observed: SetView, cursor: SetCursor) -> SetProjection:
    """The grant, when every native job waits at its start gate, or the loss of the launch."""
    standing: dict[str, JournalLine] = {}
    for part in handle.parts:
        seen = observed.members.get(part.task)
        lines = seen.page.lines if seen is not None and seen.page is not None else ()
        if lines and isinstance(lines[0].event, Granted):
            standing[part.task] = lines[0]
        lost = None if seen is None else _judge_early(handle, part.task, seen)
        if lost is not None:
            return SetProjection((lost,), replace(cursor, over=True))
    if not standing or (handle.together and len(standing) < len(handle.parts)):
        return SetProjection((), cursor)
    granted = [line.event for line in standing.values() if isinstance(line.event, Granted)]
    members = tuple(member for event in granted for member in event.members)
    places = tuple(
        replace(member, offset=standing[member.task].end) if member.task in standing else member
        for member in cursor.members
    )
    event = Granted(max(event.at for event in granted), members)
    return SetProjection((event,), replace(cursor, members=places, granted=True))


def _judge_early(handle: SetHandle, task: str, seen: GroupView) -> LaunchLost | None:
    """The loss of a launch of which a native job has ended before all of them stood."""
    page, view = seen.page, seen.view
    if page is None:
        return None
    if page.closed:
        text = f"the other jobs of the set did not start in time, so that of {task} has given its nodes back"
        return LaunchLost(page.asked, handle.launch, Cause.NEVER_STARTED.value, text)
    if seen.gone:
        # However it ended: without an order to launch nothing of the user's has run.
        return LaunchLost(page.asked, handle.launch, Cause.NODE.value, seen.gone)
    if view is None or view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED) or page.asked <= view.known_at:
        return None
    cause = view.outcome.cause or Cause.LAUNCH
    if cause is Cause.REQUEUE:
        detail = f"Slurm has requeued the job of the task {task} before the set had started; all are submitted again"
        return LaunchLost(view.over_at or view.asked, handle.launch, Cause.NODE.value, detail)
    cause = (Cause.NODE if view.outcome.signal else Cause.LAUNCH) if cause in _BY_JOURNAL else cause
    detail = view.outcome.detail or f"Slurm ended the job of the task {task} before the set had started"
    return LaunchLost(view.end or view.asked, handle.launch, cause.value, detail)


def _project_member(part: SetPart, seen: GroupView | None, member: PartCursor) -> tuple[PartCursor, list[Event]]:
    """What a native job's journal has behind the cursor, and the end of what it left open."""
    events: list[Event] = []
    if seen is None or member.over:
        return member, events
    lines = [line for line in seen.page.lines if line.end > member.offset] if seen.page is not None else []
    for line in lines:
        member = replace(member, offset=line.end, order=max(member.order, line.order))
        member = _note(part, member, line.event)
        # A replacement tells where it is; so does a task that started later than the others.
        if isinstance(line.event, (*_TOLD, Granted)):
            events.append(line.event)
    if seen.page is not None and seen.page.closed:
        return replace(member, over=True), events
    lost = _judge_loss(seen)
    if lost is None:
        return member, events
    at, cause, detail = lost
    for number, event in seen.given:
        if number > member.order:
            member = _note(part, member, event)
    events += [
        NodeEnded(at, part.task, member.attempt, node, run, signal=9, cause=cause, detail=detail)
        for node, run in member.open
    ]
    return replace(member, open=(), over=True), events


def _end_missed(part: SetPart, missed: LostAttempt) -> list[Event]:
    return [_end_run(missed.at, part.task, missed.attempt, node) for node in range(part.nodes)]


def _end_run(at: float, task: str, attempt: int, node: int, run: int = 0) -> NodeEnded:
    detail = "the job of this task had ended before the attempt could start"
    return NodeEnded(at, task, attempt, node, run, signal=9, cause=Cause.NODE.value, detail=detail)


def _note(part: SetPart, member: PartCursor, event: Event) -> PartCursor:
    """What is open after an event."""
    if isinstance(event, Launch):
        return replace(member, attempt=event.attempt, open=tuple((node, 0) for node in range(part.nodes)))
    if isinstance(event, NodeRelaunch):
        return replace(member, open=(*member.open, (event.node, event.run)))
    if isinstance(event, NodeEnded):
        still_open = tuple(one for one in member.open if one != (event.node, event.run))
        cause = find_cause(event.cause)
        # What has lost a node takes no further attempt.
        spent = cause is not None and CONSEQUENCES[cause].charge is Charge.RECOVERIES and not still_open
        return replace(member, open=still_open, over=member.over or spent)
    return member


def _judge_loss(seen: GroupView) -> tuple[float, str, str] | None:
    """When and why a native job is gone whose journal stays open; None while it is not known to be."""
    page, view = seen.page, seen.view
    if page is None or page.more:
        return None
    if seen.gone:
        return page.asked, Cause.NODE.value, seen.gone
    if view is None or view.outcome.phase not in (Phase.ENDED, Phase.REQUEUED) or page.asked <= view.known_at:
        return None
    return view.over_at or view.end or view.asked, *_word_loss(view.outcome)


def _word_loss(outcome: NativeOutcome) -> tuple[str, str]:
    """The cause of a loss and its words. Nobody ordered it through Overspan, so a cancelled job is a lost one."""
    cause = outcome.cause or Cause.NODE
    if cause in _OUTSIDE:
        return Cause.NODE.value, "the job of this task was ended by somebody on the cluster"
    if cause in _BY_JOURNAL:
        return Cause.NODE.value, "the supervisor of this task ended before the task did"
    return cause.value, outcome.detail
