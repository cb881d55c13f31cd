"""Arrays: when elements become jobs of their own, and how the array as a whole ends.

An element becomes a job of its own shortly before it starts (`Drawn`), so an array of any size is one job until then.
From there on an element is a job like any other.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle import order_effects, report_effects
from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause, find_cause
from overspan.bridge.model.ids import IndexRange, collapse, common_indices, take_indices, without_indices
from overspan.bridge.model.job import Array, Ending, Job
from overspan.bridge.model.records import NamedTuple, replace
from overspan.bridge.model.state_words import ENDED_WORDS
from overspan.bridge.model.states import State, move

AHEAD = 32
"""The least number of elements that wait on the cluster, so that it always has the next one to start."""


THROTTLED = "JobArrayTaskLimit"
_BY_SHARE = ("None", "Priority", THROTTLED)
"""Reasons of an array that nothing keeps from starting."""


class Tally(NamedTuple):
    """Counts of the elements that are jobs: how many are live, how many run, and how the others ended."""

    live: int = 0
    running: int = 0
    stuck: int = 0
    """Live elements whose dependency can never be met. They do not count against the throttle."""
    states: tuple[State, ...] = ()
    """The distinct states in which elements ended."""
    exit_code: int = 0
    """The highest exit code of those that ended."""
    signal: int = 0


def choose_drawn(job: Job, tally: Tally, enforced: bool = False, least: int = AHEAD) -> tuple[IndexRange, ...]:
    """The indices that should become jobs now: enough to keep at least `least` elements waiting on the cluster.

    Never more than the throttle, unless the cluster enforces that itself (`enforced`).
    """
    array = job.array
    if array is None or job.over or job.ending is not None:
        return ()
    # As many again as run now, so that short elements become jobs in large batches.
    active = tally.live - tally.stuck
    ahead = max(least, tally.running)
    room = ahead - (active - tally.running)
    if array.throttle is not None and not enforced:
        room = min(room, array.throttle - active)
    elif room < ahead // 2:
        # Each batch is a transaction, which is not worth it for a few elements.
        return ()
    return take_indices(array.waiting, max(0, room))[0]


def find_reason(job: Job, running: int, first: str = "") -> str:
    """Slurm's reason for the elements of an array that wait, while `running` of them hold resources.

    `first` is why the first pending element waits, where one is a job already: the throttle holds the others only once
    as many run as may run at once. What keeps the array as a whole (a hold, a dependency) comes before both.
    """
    if job.array is None or job.reason not in _BY_SHARE:
        return job.reason
    if job.array.throttle is not None and running >= job.array.throttle:
        return THROTTLED
    return first or ("None" if job.reason == "None" else "Priority")


def find_end(job: Job, tally: Tally, at: float) -> Optional[events.Gathered]:
    """The end of an array whose last element has ended."""
    array = job.array
    if array is None or job.over or array.waiting or tally.live:
        return None
    if job.ending is not None:
        return events.Gathered(at, job.ending.state.value, tally.exit_code, tally.signal)
    worst = next((state for state in _BY_GRAVITY if state in tally.states), None)
    if worst is None:
        worst = State.CANCELLED if array.cancelled and not tally.states else State.COMPLETED
    return events.Gathered(at, worst.value, tally.exit_code, tally.signal)


_BY_GRAVITY = tuple(State(word) for word in ENDED_WORDS if word != "COMPLETED")


def reduce_array(job: Job, array: Array, event: events.Event) -> Optional[Job]:
    """The array after the event; None where the event is late or makes no sense."""
    shared = _SHARED.get(type(event))
    if shared is not None:
        return shared(job, event)
    own = _OWN.get(type(event))
    return None if own is None else own(job, array, event)


def _drawn(job: Job, array: Array, event: events.Drawn) -> Optional[Job]:
    taken = _ranges(event.ranges)
    if job.over or job.ending is not None or common_indices(array.waiting, taken) != _plain(taken):
        return None
    return _wait_for(job, array, without_indices(array.waiting, taken), event.at)


def _cancel_elements(job: Job, array: Array, event: events.CancelElements) -> Optional[Job]:
    gone = common_indices(array.waiting, _ranges(event.ranges))
    if job.over or not gone:
        return None
    array = replace(array, cancelled=_join(array.cancelled, gone))
    return _wait_for(job, array, without_indices(array.waiting, gone), event.at)


def _cancel(job: Job, array: Array, event: events.Cancel) -> Optional[Job]:
    if job.over or (job.ending is not None and job.ending.cause is Cause.CANCEL):
        return None
    return _end(job, array, Ending(Cause.CANCEL, event.at, State.CANCELLED, by=event.by, at_once=True))


def _expire(job: Job, array: Array, event: events.Expire) -> Optional[Job]:
    cause = find_cause(event.cause)
    if job.over or job.ending is not None or cause is None:
        return None
    state, reason, _ = CONSEQUENCES[cause]
    return _end(job, array, Ending(cause, event.at, state, reason, at_once=True))


def _end(job: Job, array: Array, ending: Ending) -> Job:
    cancelled = _join(array.cancelled, array.waiting)
    return replace(job, ending=ending, array=replace(array, waiting=(), cancelled=cancelled))


def _gathered(job: Job, array: Array, event: events.Gathered) -> Optional[Job]:
    if job.over or array.waiting:
        return None
    state = State(event.state)
    reason = job.ending.reason if job.ending is not None else "None"
    tasks = tuple(replace(task, state=move(task.state, state), reason=reason, ended_at=event.at) for task in job.tasks)
    return replace(
        job,
        tasks=tasks,
        state=move(job.state, state),
        reason=reason,
        ended_at=event.at,
        exit_code=event.exit_code,
        signal=event.signal,
    )


def _hold(job: Job, array: Array, event: events.Hold) -> Optional[Job]:
    return order_effects.hold_waiting(job, event) if array.waiting else None


def _set_throttle(job: Job, array: Array, event: events.SetThrottle) -> Optional[Job]:
    return None if job.over else replace(job, array=replace(array, throttle=event.throttle or None))


def _wait_for(job: Job, array: Array, waiting: tuple[IndexRange, ...], at: float) -> Job:
    job = replace(job, array=replace(array, waiting=waiting))
    if waiting or job.state is not State.PENDING:
        return job
    return replace(job, state=move(job.state, State.RUNNING), reason="None", started_at=at)


def _ranges(parts: Iterable[tuple[int, int, int]]) -> tuple[IndexRange, ...]:
    return tuple(IndexRange(*part) for part in parts)


def _plain(ranges: Iterable[IndexRange]) -> tuple[IndexRange, ...]:
    return collapse(index for part in ranges for index in part.values())


def _join(some: Iterable[IndexRange], others: Iterable[IndexRange]) -> tuple[IndexRange, ...]:
    return _plain((*some, *others))


_SHARED: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    **{
        kind: order_effects.HANDLERS[kind]
        for kind in (
            events.Release,
            events.SetTime,
            events.SetPriority,
            events.SetNice,
            events.SetBegin,
            events.SetDependency,
        )
    },
    **{kind: report_effects.HANDLERS[kind] for kind in (events.Queued, events.Resolved)},
}
_OWN: dict[type, Callable[[Job, Array, Any], Optional[Job]]] = {
    events.Drawn: _drawn,
    events.Gathered: _gathered,
    events.Cancel: _cancel,
    events.CancelElements: _cancel_elements,
    events.Hold: _hold,
    events.SetThrottle: _set_throttle,
    events.Expire: _expire,
}
