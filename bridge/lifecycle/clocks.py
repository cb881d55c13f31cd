"""Steps of the wall clock: delays and limits count elapsed time, so stored times are shifted when a clock is set.

Of a running job, all times since the grant move, and with them what is due later. Of a waiting job, the time since it
was offered to its cluster and the end of a back-off move. Calendar times that people chose (begin, deadline) stay.
"""

from __future__ import annotations

import math
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.lookup import find_node
from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Attempt, Ending, Flush, Job, NodeRun, Stop, Task
from overspan.bridge.model.records import replace

_Move = Callable[[Optional[float]], Any]
"""The time by the new clock; None stays None."""


def _clock_set(job: Job, event: events.ClockSet) -> Optional[Job]:
    if job.over:
        return None
    if job.granted_at is None:
        moved = _move_waiting(job, event.seconds)
        return None if moved == job else moved
    # Earlier launches may have been on another machine.
    return move_times(job, event.seconds, job.granted_at)


def _move_waiting(job: Job, seconds: float) -> Job:
    return replace(
        job,
        begin=job.begin + seconds if job.backs_off and job.begin is not None else job.begin,
        offered_at=None if job.offered_at is None else job.offered_at + seconds,
        resolved=tuple(one if one.at is None else one._replace(at=one.at + seconds) for one in job.resolved),
        bids=tuple(replace(bid, at=bid.at + seconds) for bid in job.bids),
        passed=tuple(one._replace(at=one.at + seconds) if one.raced else one for one in job.passed),
    )


def is_moved(job: Job) -> bool:
    """Whether a job has times that move when the clock is set."""
    return not job.over and (job.granted_at is not None or _move_waiting(job, 1.0) != job)


def date_report(job: Job, event: Event, now: float, slack: float = 0.0) -> Event:
    """The report, dated `now` if its own time is impossible because a clock is wrong or was set since.

    A possible time lies between the start of what it reports and `now`, give or take `slack` seconds between clocks.
    """
    begun = -math.inf
    if isinstance(event, (events.NodeStarted, events.NodeEnded)):
        found = find_node(job, event.task, event.attempt, event.node, event.run)
        if found is None:
            return event
        _, attempt, node = found
        begun = attempt.launched_at if node.started_at is None else node.started_at
    return event if begun - slack <= event.at <= now + slack else event._replace(at=now)


def move_times(job: Job, seconds: float, since: float) -> Job:
    """The job with all times since the grant, and all that are due later, shifted by so many seconds."""

    def move(at: Optional[float]) -> Optional[float]:
        return at if at is None or at < since else at + seconds

    return replace(
        job,
        granted_at=move(job.granted_at),
        started_at=move(job.started_at),
        suspended_at=move(job.suspended_at),
        ending=None if job.ending is None else _move_ending(job.ending, move),
        tasks=tuple(_move_task(task, move) for task in job.tasks),
    )


def _move_ending(ending: Ending, move: _Move) -> Ending:
    return replace(ending, at=move(ending.at), hold_until=move(ending.hold_until))


def _move_task(task: Task, move: _Move) -> Task:
    return replace(
        task,
        attempts=tuple(_move_attempt(attempt, move) for attempt in task.attempts),
        next_start=move(task.next_start),
        ready_at=move(task.ready_at),
        noticed_at=move(task.noticed_at),
        ended_at=move(task.ended_at),
    )


def _move_attempt(attempt: Attempt, move: _Move) -> Attempt:
    return replace(
        attempt,
        nodes=tuple(_move_node(node, move) for node in attempt.nodes),
        launched_at=move(attempt.launched_at),
        started_at=move(attempt.started_at),
        ended_at=move(attempt.ended_at),
        stop=None if attempt.stop is None else _move_stop(attempt.stop, move),
        warned_at=move(attempt.warned_at),
        flush=None if attempt.flush is None else _move_flush(attempt.flush, move),
    )


def _move_node(node: NodeRun, move: _Move) -> NodeRun:
    return replace(
        node, started_at=move(node.started_at), ended_at=move(node.ended_at), next_start=move(node.next_start)
    )


def _move_stop(stop: Stop, move: _Move) -> Stop:
    return replace(stop, at=move(stop.at), kill_at=move(stop.kill_at), killed_at=move(stop.killed_at))


def _move_flush(flush: Flush, move: _Move) -> Flush:
    return replace(flush, at=move(flush.at), until=move(flush.until))


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.ClockSet: _clock_set}
"""Each gives the job after the event; None where the event is late or makes no sense."""
