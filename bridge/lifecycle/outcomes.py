"""Consequences of ends: an attempt's end for its task, and a task's end for its job."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.lifecycle.lookup import name_nodes
from overspan.bridge.lifecycle.needs import find_failed_need, is_spared
from overspan.bridge.lifecycle.probes import describe_overdue
from overspan.bridge.lifecycle.retries import charge_retry, restart_scope, retry_time
from overspan.bridge.model.allocations import has_body
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge, is_stopped
from overspan.bridge.model.job import Attempt, Ending, Job, NodeRun, Stop, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import OnFailure, RestartScope, TaskSpec
from overspan.bridge.model.states import State, move
from overspan.bridge.model.storage import OnFlushFailure

LOSSES = frozenset(cause for cause, row in CONSEQUENCES.items() if row.charge is Charge.RECOVERIES)


def put_task(job: Job, task: Task) -> Job:
    """The job with that task's facts replaced."""
    return replace(job, tasks=tuple(task if old.name == task.name else old for old in job.tasks))


def put_attempt(task: Task, attempt: Attempt) -> Task:
    """The task with its newest attempt replaced."""
    return replace(task, attempts=(*task.attempts[:-1], attempt))


def end_attempt(job: Job, task: Task, attempt: Attempt, at: float, unsent: str = "") -> Job:
    """Close an attempt whose nodes have all ended: another attempt follows, or its task ends.

    `unsent` says which of its data is not in its store, and why.
    """
    spec = job.spec_of(task.name)
    cause, node = _verdict(spec, attempt)
    if unsent and spec.flush.on_failure is OnFlushFailure.FAIL and CONSEQUENCES[cause].state is State.COMPLETED:
        cause = Cause.CANCEL if task.unflushed or task.wanted is Cause.CANCEL else Cause.FLUSH
    at = max([at, *(run.ended_at for run in attempt.nodes if run.ended_at is not None)])
    if task.wanted is not None and CONSEQUENCES[cause].charge not in (Charge.NONE, Charge.FINAL):
        # It failed before the order reached it. The order still applies, and the restart is not charged to a budget.
        cause = task.wanted
    closed = replace(
        attempt,
        nodes=name_nodes(job, task.name, (replace(run, next_start=None) for run in attempt.nodes)),
        state=CONSEQUENCES[cause].state,
        ended_at=at,
        cause=cause,
        exit_code=node.exit_code,
        signal=node.signal,
        detail=_join(describe_overdue(job, spec, task) if cause is Cause.NOT_READY else node.detail, unsent),
    )
    return follow(job, replace(put_attempt(task, closed), wanted=None, ready_at=None), closed, at)


def _join(*sentences: str) -> str:
    return "; ".join(filter(None, sentences))


def follow(job: Job, task: Task, attempt: Attempt, at: float) -> Job:
    """Start another attempt where an order asks for it or a budget allows it; else end the task."""
    cause = attempt.cause or Cause.NODE
    if job.ending is None:
        spec = job.spec_of(task.name)
        if cause is Cause.GROUP_RESTART:
            return put_task(job, wait_task(task, max([at, *_waiting_times(job)])))
        if CONSEQUENCES[cause].charge is Charge.OPERATOR:
            return put_task(job, wait_task(task, at))
        retried = charge_retry(spec, task, cause, attempt.nodes)
        if retried is not None:
            due = retry_time(job, spec, retried, at)
            job = put_task(job, wait_task(retried, due))
            if cause in LOSSES and restart_scope(job, spec) is RestartScope.GROUP:
                job = restart_group(job, due)
            return job
    elif job.ending.requeues:
        return put_task(job, wait_task(task, None))
    elif CONSEQUENCES[cause].charge is Charge.OPERATOR:
        # A restart was due, but the job's end was decided first.
        cause = job.ending.cause
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


def restart_group(job: Job, due: float) -> Job:
    """Ask for the end of every other live attempt, so that all tasks start again together at `due`."""
    return replace(job, tasks=tuple(_regroup(task, due) for task in job.tasks))


def _regroup(task: Task, due: float) -> Task:
    if task.live:
        return task if task.wanted is Cause.CANCEL else replace(task, wanted=Cause.GROUP_RESTART)
    return task if task.next_start is None else replace(task, next_start=due)


def _waiting_times(job: Job) -> list[float]:
    return [task.next_start for task in job.tasks if task.next_start is not None and not task.live]


def end_task(job: Job, task: Task, cause: Cause, at: float) -> Job:
    """End a task for good; a primary's end, or a failure that counts, decides the job's end."""
    state, reason, _ = CONSEQUENCES[cause]
    task = replace(task, state=move(task.state, state), reason=reason, next_start=None, wanted=None, ended_at=at)
    job = put_task(job, task)
    if job.ending is not None and cause is Cause.FLUSH and job.ending.state is State.COMPLETED:
        # A job has not done what it should while data of an auxiliary task is missing.
        return replace(job, ending=replace(job.ending, state=state, reason=reason))
    if job.ending is not None:
        return _complete_in_time(job, at) if job.ending.cause is Cause.DEADLINE else job
    spec = job.spec_of(task.name)
    if spec.primary:
        failed = find_failed_need(job, spec) if cause is Cause.DEPENDENCY else None
        if failed is not None:
            # The failed task's `on_failure` does not matter: a primary cannot run without it, and it was not cancelled.
            return _fail_job(job, Cause.AUXILIARY_FAILED, State.FAILED, "AuxiliaryFailed", failed.ended_at or at)
        if state is not State.COMPLETED and not (cause is Cause.DEPENDENCY and is_spared(job, spec)):
            return _fail_job(job, Cause.PRIMARY_FAILED, state, reason, at)
        followed = job.stage is not None and job.stage.followed and not job.stage.later
        if not followed and all(_is_done(job, other) for other in job.spec.tasks if other.primary):
            return replace(job, ending=Ending(Cause.PRIMARIES_DONE, at, State.COMPLETED))
    elif state not in (State.COMPLETED, State.CANCELLED) and spec.on_failure is not OnFailure.IGNORE:
        return _fail_job(job, Cause.AUXILIARY_FAILED, State.FAILED, "AuxiliaryFailed", at)
    return job


def _complete_in_time(job: Job, at: float) -> Job:
    """Restore success where the last primary ended before the deadline but its report came after it."""
    if job.spec.deadline is None or at >= job.spec.deadline:
        return job
    if not all(_is_done(job, spec) for spec in job.spec.tasks if spec.primary):
        return job
    return replace(job, ending=Ending(Cause.PRIMARIES_DONE, at, State.COMPLETED, at_once=True))


def _is_done(job: Job, spec: TaskSpec) -> bool:
    task = job.task(spec.name)
    return task.state is State.COMPLETED or (task.over and is_spared(job, spec))


def _fail_job(job: Job, cause: Cause, state: State, reason: str, at: float) -> Job:
    keep = job.spec.hold_on_failure if state is not State.CANCELLED else 0
    return replace(job, ending=Ending(cause, at, state, reason, hold_until=at + keep if keep else None))


def _verdict(spec: TaskSpec, attempt: Attempt) -> tuple[Cause, NodeRun]:
    """Why the attempt ended, and the node whose exit code shows it."""
    body = attempt.nodes[0]
    own = attempt.stop is None or attempt.stop.cause is body.cause or _ended_before(body, attempt.stop)
    if own and has_body(spec):
        # A batch script's end is the attempt's; how its step daemons ended does not matter.
        return body.cause or Cause.NODE, body
    failures = sorted(
        (node for node in attempt.nodes if node.cause is not Cause.SUCCESS), key=lambda node: node.ended_at or 0.0
    )
    worst = failures[0] if failures else attempt.nodes[0]
    stop = attempt.stop
    # The stop did not end a node run that was already over when it was ordered. It did end one that waited for its
    # restart.
    if stop is not None and any(node.next_start is not None or not _ended_before(node, stop) for node in attempt.nodes):
        return stop.cause, worst
    return (worst.cause or Cause.NODE) if failures else Cause.SUCCESS, worst


def _ended_before(node: NodeRun, stop: Stop) -> bool:
    # Some clusters report whole seconds only, so an end by TERM may seem older than the TERM.
    return (node.ended_at or 0.0) < stop.at and not is_stopped(node.exit_code, node.signal)
