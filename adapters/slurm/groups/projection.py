"""Projects a supervisor's journal and Slurm's records of its allocation to the events of a group's launch. Pure.

The journal decides; Slurm's own end closes what the journal has left open. Before there is a journal, Slurm's queue
tells, and the orders that were given to Slurm.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from overspan.adapters.slurm.handles import GroupCursor, GroupHandle
from overspan.adapters.slurm.observation.journals import JournalPage
from overspan.adapters.slurm.observation.outcomes import NativeOutcome, Phase
from overspan.adapters.slurm.observation.projection import (
    BY_SLURM,
    NativeView,
    Ordered,
    is_before,
    list_known,
    project_hold,
)
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Hold,
    LaunchLost,
    Preempt,
    Release,
    Requeue,
    Resume,
    SetTime,
    Suspend,
)

MARGIN = 15
"""Seconds behind its grace after which a group that was cancelled is ended by Slurm."""
_BY_JOURNAL = (Cause.EXIT, Cause.SIGNAL, Cause.SUCCESS, Cause.SETUP)
"""Ends of the batch program that say nothing of the work: the supervisor has ended without a word."""


class GroupProjection(NamedTuple):
    """Events in their order, and the cursor behind them."""

    events: tuple[Event, ...]
    cursor: GroupCursor


@dataclass(frozen=True)
class GroupView:
    """What was seen of a group: Slurm's view of the leader, its journal, the numbered orders that were given it.

    `given` is read only where Slurm's end is known. `gone` says why Slurm has forgotten the job; else empty.
    `apart`: the journal was written on a node, and what was not brought from there in time is lost.
    """

    view: NativeView | None
    page: JournalPage | None
    given: tuple[tuple[int, Event], ...] = ()
    gone: str = ""
    apart: bool = False


def project_group(
    handle: GroupHandle, observed: GroupView, cursor: GroupCursor, orders: Sequence[Ordered]
) -> GroupProjection:
    """The events behind a cursor."""
    if cursor.over:
        return GroupProjection((), cursor)
    lines = [line for line in observed.page.lines if line.end > cursor.offset] if observed.page else []
    late = _settled(orders, cursor, observed, bool(lines))
    events: list[Event] = []
    if not cursor.offset:
        events += [order.event for order in late if _is_reported_early(order.event, bool(lines))]
    cursor = _note_orders(handle, cursor, late)
    if not cursor.offset and not lines and observed.view is not None:
        found, cursor = project_hold(observed.view, cursor, orders)
        events += found
    for line in lines:
        cursor = replace(cursor, offset=line.end, order=max(cursor.order, line.order), held=False)
        if isinstance(line.event, Cancel) and not line.event.task:
            cursor = _set_kill(handle, cursor, line.event)
        # Slurm stops and continues an allocation; the supervisor gets the order for its own clocks only.
        if not isinstance(line.event, (Suspend, Resume)):
            events.append(line.event)
    if observed.page is not None and observed.page.closed:
        return GroupProjection(tuple(events), cursor)
    if observed.view is not None and cursor.offset:
        found, cursor = _project_suspension(observed.view, cursor)
        events += found
    end = _project_end(handle, observed, cursor, late)
    if end:
        events += end
        cursor = replace(cursor, over=True)
    return GroupProjection(tuple(events), cursor)


def _settled(orders: Sequence[Ordered], cursor: GroupCursor, observed: GroupView, started: bool) -> list[Ordered]:
    """The orders to report now. Stops at one that the supervisor may still report in its journal.

    It will not where Slurm kept the group waiting after the order: then this reports it, and the journal repeats it.
    """
    found = []
    for order in list_known(orders, cursor.orders, started or bool(cursor.offset) or _is_closing(observed)):
        view = observed.view
        waits = view is not None and view.outcome.phase is Phase.QUEUED and view.asked > order.done_at
        over = view is not None and view.outcome.phase is Phase.ENDED
        if _is_for_supervisor(order.event) and not (started or cursor.offset or waits or over):
            break
        found.append(order)
    return found


def _is_closing(observed: GroupView) -> bool:
    """Whether Slurm has reported the end, and the journal was read after that."""
    page, view = observed.page, observed.view
    ended = view is not None and view.outcome.phase in (Phase.ENDED, Phase.REQUEUED)
    return ended and view is not None and page is not None and not page.more and page.asked > view.known_at


def _is_for_supervisor(event: Event) -> bool:
    """Whether it is an order on part of a group, which its supervisor carries out."""
    return isinstance(event, SetTime) or (isinstance(event, Cancel) and bool(event.task))


def _is_reported_early(event: Event, started: bool) -> bool:
    """Whether to report an order on a waiting group at once; one that ends the group is reported with its end."""
    return not started if _is_for_supervisor(event) else not isinstance(event, (Cancel, Expire))


def _note_orders(handle: GroupHandle, cursor: GroupCursor, orders: Sequence[Ordered]) -> GroupCursor:
    for order in orders:
        if isinstance(order.event, (Hold, Release)) and not cursor.offset:
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


def _project_end(handle: GroupHandle, observed: GroupView, cursor: GroupCursor, late: Sequence[Ordered]) -> list[Event]:
    """Slurm's verdict on a launch whose journal stays open, once that was read after Slurm had reported the end."""
    page, view = observed.page, observed.view
    if page is None or page.more:
        return []
    if observed.gone:
        return [LaunchLost(page.asked, handle.launch, Cause.LAUNCH.value, observed.gone)]
    if view is None or not _is_closing(observed):
        return []
    at = view.over_at or view.end or view.asked
    judge = _judge_apart if observed.apart else _judge_loss
    lost = LaunchLost(at, handle.launch, *judge(handle, view.outcome))
    given = [event for number, event in observed.given if number > cursor.order]
    given += [order.event for order in late if isinstance(order.event, Expire) and order.event not in given]
    ending = [event for event in given if _ends(event) and not _is_moot(event, lost, late)]
    if not cursor.offset and any(isinstance(event, (Cancel, Expire)) for event in ending):
        # Nothing was granted, so the order is the end.
        return ending
    return [*ending, lost]


def _ends(event: Event) -> bool:
    """Whether an order ends the launch as a whole."""
    return isinstance(event, (Requeue, Preempt, Expire)) or (isinstance(event, Cancel) and not event.task)


def _judge_loss(handle: GroupHandle, outcome: NativeOutcome) -> tuple[str, str]:
    """The cause of a loss and its words."""
    if outcome.phase is Phase.REQUEUED:
        return Cause.NODE.value, "Slurm has requeued the allocation; it is submitted again"
    cause = outcome.cause or Cause.LAUNCH
    if cause in _BY_JOURNAL:
        log = f"{handle.folder}/supervisor.{handle.launch}.log"
        status = f"signal {outcome.signal}" if outcome.signal else f"exit code {outcome.exit_code}"
        # Killed, it says nothing of the work, as a lost node does not; its own exit would come again.
        lost = Cause.NODE if outcome.signal else Cause.LAUNCH
        return lost.value, f"the supervisor ended with {status} before the job did; see {log}"
    return cause.value, outcome.detail


def _judge_apart(handle: GroupHandle, outcome: NativeOutcome) -> tuple[str, str]:
    """As with a shared folder, but the supervisor may have ended in order while no relay took its record."""
    if outcome.phase is Phase.REQUEUED or outcome.cause not in (Cause.SUCCESS, Cause.EXIT):
        return _judge_loss(handle, outcome)
    text = f"the batch script ended with exit code {outcome.exit_code}; its record stayed on the node"
    logs = f"{handle.folder}/supervisor.{handle.launch}.log, or /tmp/overspan-{handle.native}.log on its first node"
    return outcome.cause.value, f"{text}, so how each task ended is not known; see {logs}"


def _is_moot(event: Event, lost: LaunchLost, orders: Sequence[Ordered]) -> bool:
    """Whether the group had ended for good before the order; what would be submitted again heeds a late order too."""
    final = CONSEQUENCES[Cause(lost.cause)].charge is not Charge.RECOVERIES
    if not final or lost.cause == Cause.CANCEL.value or not isinstance(event, Cancel):
        return False
    order = next((order for order in orders if order.event == event), Ordered(0, event, event.at))
    return is_before(lost.at, order)
