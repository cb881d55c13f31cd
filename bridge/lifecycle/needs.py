"""`needs` of a task: what it waits for in its own job."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.job import Job, Task
from overspan.bridge.model.spec import Need, NeedKind, TaskSpec
from overspan.bridge.model.states import State


def needs_met(job: Job, spec: TaskSpec) -> bool:
    """Whether all needs of the task are met."""
    return all(_met(job.task(need.task), need) for need in spec.needs)


def list_unmet_needs(job: Job, spec: TaskSpec) -> tuple[Need, ...]:
    """The needs of the task that are not met yet."""
    return tuple(need for need in spec.needs if not _met(job.task(need.task), need))


def needs_lost(job: Job, spec: TaskSpec) -> bool:
    """Whether a need of the task can never be met."""
    return any(job.task(need.task).over and not _met(job.task(need.task), need) for need in spec.needs)


def find_failed_need(job: Job, spec: TaskSpec) -> Optional[Task]:
    """The failed task that keeps this one from ever starting, directly or through tasks in between."""
    for need in spec.needs:
        task = job.task(need.task)
        if not task.over or _met(task, need):
            continue
        if task.state not in (State.COMPLETED, State.CANCELLED):
            return task
        failed = find_failed_need(job, job.spec_of(need.task))
        if failed is not None:
            return failed
    return None


def is_spared(job: Job, spec: TaskSpec) -> bool:
    """Whether the task was for a failure that did not happen; then it is skipped, and nothing failed."""
    return any(need.kind is NeedKind.NOT_OK and job.task(need.task).state is State.COMPLETED for need in spec.needs)


def _met(task: Task, need: Need) -> bool:
    if need.kind is NeedKind.STARTED:
        # Attempts before a requeue or a restart do not count.
        current = task.current
        return task.state is not State.PENDING and current is not None and current.started_at is not None
    if need.kind is NeedKind.READY:
        return task.ready_at is not None
    if need.kind is NeedKind.OK:
        return task.state is State.COMPLETED
    if need.kind is NeedKind.NOT_OK:
        return task.over and task.state is not State.COMPLETED
    return task.over
