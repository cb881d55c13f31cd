"""Reducers for suspend and resume.

A suspended job starts nothing and its wall time stands still, but its deadline does not (scontrol(1), suspend). The end
of the job ends the suspension.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.model import events
from overspan.bridge.model.job import Attempt, Job, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.states import State, move


def _suspend(job: Job, event: events.Suspend) -> Optional[Job]:
    if job.state is not State.RUNNING or job.ending is not None or job.suspended_at is not None:
        return None
    tasks = tuple(_shift(task, State.RUNNING, State.SUSPENDED) for task in job.tasks)
    return replace(job, tasks=tasks, suspended_at=event.at)


def _resume(job: Job, event: events.Resume) -> Optional[Job]:
    if job.suspended_at is None:
        return None
    job = end_suspension(job, event.at)
    return replace(job, tasks=tuple(_shift(task, State.SUSPENDED, State.RUNNING) for task in job.tasks))


def end_suspension(job: Job, at: float) -> Job:
    """Add the suspended time to the job and to each live attempt; states stay as they are."""
    since = job.suspended_at
    if since is None:
        return job
    tasks = tuple(_count(task, since, at) for task in job.tasks)
    return replace(job, tasks=tasks, suspended_at=None, suspended=job.suspended + max(0.0, at - since))


def _shift(task: Task, start: State, end: State) -> Task:
    attempt = task.current
    if task.state is not start or attempt is None or not attempt.live:
        return task
    attempts = (*task.attempts[:-1], replace(attempt, state=end))
    return replace(task, state=move(task.state, end), attempts=attempts)


def _count(task: Task, since: float, at: float) -> Task:
    attempt: Optional[Attempt] = task.current
    if attempt is None or not attempt.live:
        return task
    begun_at = attempt.begun_at
    seconds = 0.0 if begun_at is None else max(0.0, at - max(since, begun_at))
    return replace(task, attempts=(*task.attempts[:-1], replace(attempt, suspended=attempt.suspended + seconds)))


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.Suspend: _suspend, events.Resume: _resume}
"""Each gives the job after the event; None where the event is late or makes no sense."""
