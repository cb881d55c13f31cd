"""The effect of a wall clock that was set: delays and limits count the time that has passed, not what a clock shows.

What has happened since the launch got its resources moves with the clock, and so does what is due after it. What
people named by the calendar (a begin time, a deadline) stays.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional

from overspan.bridge.model import events
from overspan.bridge.model.job import Attempt, Ending, Job, NodeRun, Stop, Task

_Move = Callable[[Optional[float]], Any]
"""The time by the new clock; None stays None."""


def _clock_set(job: Job, event: events.ClockSet) -> Optional[Job]:
    if job.granted_at is None or job.over:
        return None
    # Earlier launches may have been on another machine.
    return move_times(job, event.seconds, job.granted_at)


def move_times(job: Job, seconds: float, since: float) -> Job:
    """The job with all times of what has happened since then, and of what is due after it, moved by so much."""

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
    )


def _move_node(node: NodeRun, move: _Move) -> NodeRun:
    return replace(
        node, started_at=move(node.started_at), ended_at=move(node.ended_at), next_start=move(node.next_start)
    )


def _move_stop(stop: Stop, move: _Move) -> Stop:
    return replace(stop, at=move(stop.at), kill_at=move(stop.kill_at), killed_at=move(stop.killed_at))


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.ClockSet: _clock_set}
"""Each gives the job after the event; None where the event is late or makes no sense."""
