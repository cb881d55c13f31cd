"""What the end of an attempt means for its task, and the end of a task for its job."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from overspan.bridge.lifecycle.retries import charge_retry, restart_scope, retry_time
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge
from overspan.bridge.model.job import Attempt, Ending, Job, NodeRun, Task
from overspan.bridge.model.spec import OnFailure, RestartScope
from overspan.bridge.model.states import State, move

LOSSES = frozenset(cause for cause, row in CONSEQUENCES.items() if row.charge is Charge.RECOVERIES)


def put_task(job: Job, task: Task) -> Job:
    """The job with that task's facts replaced."""
    return replace(job, tasks=tuple(task if old.name == task.name else old for old in job.tasks))


def put_attempt(task: Task, attempt: Attempt) -> Task:
    """The task with its newest attempt replaced."""
    return replace(task, attempts=(*task.attempts[:-1], attempt))


def end_attempt(job: Job, task: Task, attempt: Attempt, at: float) -> Job:
    """Close an attempt whose nodes have all ended, and draw the consequences."""
    cause, node = _verdict(attempt)
    closed = replace(
        attempt,
        state=CONSEQUENCES[cause].state,
        ended_at=at,
        cause=cause,
        exit_code=node.exit_code,
        signal=node.signal,
        detail=node.detail,
    )
    return follow(job, replace(put_attempt(task, closed), wanted=None, ready_at=None), closed, at)


def follow(job: Job, task: Task, attempt: Attempt, at: float) -> Job:
    """Another attempt, or the task's end and what that means for the job."""
    cause = attempt.cause or Cause.NODE
    if job.ending is None:
        spec = job.spec_of(task.name)
        if CONSEQUENCES[cause].charge is Charge.OPERATOR:
            return put_task(job, wait_task(task, at))
        retried = charge_retry(spec, task, cause, attempt.nodes)
        if retried is not None:
            job = put_task(job, wait_task(retried, retry_time(job, spec, retried, at)))
            if cause in LOSSES and restart_scope(job, spec) is RestartScope.GROUP:
                job = restart_group(job)
            return job
    elif job.ending.cause is Cause.REQUEUE:
        return put_task(job, wait_task(task, None))
    return end_task(job, task, cause, at)


def wait_task(task: Task, next_start: Optional[float]) -> Task:
    """The task between two attempts."""
    reason = "None" if next_start is None else "BeginTime"
    return replace(
        task,
        state=move(task.state, State.PENDING),
        reason=reason,
        next_start=next_start,
        ended_at=None,
        noticed_at=None,
    )


def restart_group(job: Job) -> Job:
    """Ask for the end of every other live attempt, so that all tasks start again together."""
    tasks = tuple(replace(task, wanted=Cause.GROUP_RESTART) if task.live else task for task in job.tasks)
    return replace(job, tasks=tasks)


def end_task(job: Job, task: Task, cause: Cause, at: float) -> Job:
    """End a task for good; a primary's end, or a failure that counts, decides the job's end."""
    state, reason, _ = CONSEQUENCES[cause]
    task = replace(task, state=move(task.state, state), reason=reason, next_start=None, wanted=None, ended_at=at)
    job = put_task(job, task)
    if job.ending is not None:
        return job
    spec = job.spec_of(task.name)
    if spec.primary:
        if state is not State.COMPLETED:
            return _fail_job(job, Cause.PRIMARY_FAILED, state, reason, at)
        done = all(job.task(other.name).state is State.COMPLETED for other in job.spec.tasks if other.primary)
        if done:
            return replace(job, ending=Ending(Cause.PRIMARIES_DONE, at, State.COMPLETED))
    elif state not in (State.COMPLETED, State.CANCELLED) and spec.on_failure is not OnFailure.IGNORE:
        return _fail_job(job, Cause.AUXILIARY_FAILED, State.FAILED, "AuxiliaryFailed", at)
    return job


def _fail_job(job: Job, cause: Cause, state: State, reason: str, at: float) -> Job:
    keep = job.spec.hold_on_failure if state is not State.CANCELLED else 0
    return replace(job, ending=Ending(cause, at, state, reason, hold_until=at + keep if keep else None))


def _verdict(attempt: Attempt) -> tuple[Cause, NodeRun]:
    """Why the attempt ended, and the node whose codes tell it."""
    failures = sorted(
        (node for node in attempt.nodes if node.cause is not Cause.SUCCESS), key=lambda node: node.ended_at or 0.0
    )
    worst = failures[0] if failures else attempt.nodes[0]
    stop = attempt.stop
    # A stop that came when all was over already did not end anything.
    if stop is not None and any((node.ended_at or 0.0) > stop.at for node in attempt.nodes):
        return stop.cause, worst
    return (worst.cause or Cause.NODE) if failures else Cause.SUCCESS, worst
