"""Reducers for orders: how a job's facts change when a user asks for something."""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.lookup import find_task
from overspan.bridge.lifecycle.outcomes import end_task, put_attempt, put_task, wait_task
from overspan.bridge.lifecycle.settlement import reset, settle
from overspan.bridge.lifecycle.stages import is_carried, leave_stage, list_carried, prevents_primary
from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause
from overspan.bridge.model.documents import decode
from overspan.bridge.model.job import Ending, Job, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import Dependency
from overspan.bridge.model.states import State, move


def _cancel(job: Job, event: events.Cancel) -> Optional[Job]:
    if event.flush:
        return _end(job, event)
    skipped = _skip_flush(job, event.task)
    ended = _end(skipped, event)
    return ended if ended is not None else skipped if skipped is not job else None


def _skip_flush(job: Job, name: str) -> Job:
    """The job that does not wait for the data of these tasks."""
    if not any(_waits_for_data(job, task, name) for task in job.tasks):
        return job
    tasks = (replace(task, unflushed=True) if _waits_for_data(job, task, name) else task for task in job.tasks)
    return replace(job, tasks=tuple(tasks))


def _waits_for_data(job: Job, task: Task, name: str) -> bool:
    return name in ("", task.name) and not task.over and not task.unflushed and job.spec_of(task.name).flushes


def _end(job: Job, event: events.Cancel) -> Optional[Job]:
    if event.task:
        return _cancel_task(job, event)
    if job.over or (event.done and _has_failed(job)):
        return None
    if job.ending is None or job.ending.requeues:
        ending = Ending(Cause.CANCEL, event.at, State.CANCELLED, by=event.by, at_once=True, grace=event.grace)
        if event.done:
            # As if the primaries had ended by themselves.
            done = replace(ending, cause=Cause.PRIMARIES_DONE, state=State.COMPLETED, reason=event.done)
            ending = replace(done, at_once=not event.delayed)
        return replace(job, ending=ending, requeue_held=False)
    if job.ending.at_once and job.ending.hold_until is None:
        return None
    # The outcome is decided already; the processes that are left end now.
    return replace(job, ending=replace(job.ending, at_once=True, hold_until=None, by=event.by))


def _has_failed(job: Job) -> bool:
    """Whether programs of a primary have failed whose data is on its way: the job is not done by its scores then."""
    for spec in job.spec.tasks:
        attempt = job.task(spec.name).current
        flushes = spec.primary and attempt is not None and attempt.flush is not None and attempt.ended_at is None
        if flushes and attempt is not None and any(node.cause is not Cause.SUCCESS for node in attempt.nodes):
            return True
    return False


def _cancel_task(job: Job, event: events.Cancel) -> Optional[Job]:
    task = find_task(job, event.task)
    if task is None or task.over or task.wanted is Cause.CANCEL or _is_closing(job, task):
        return None
    if task.live:
        return put_task(job, replace(task, wanted=Cause.CANCEL))
    return end_task(job, task, Cause.CANCEL, event.at)


def is_fatal(job: Job, event: events.Cancel) -> bool:
    """Whether the cancel of a task ends a job with stages by what it means for later ones: a primary never starts."""
    task = find_task(job, event.task)
    if task is None or task.over or job.stage is None or job.ending is not None:
        return False
    if is_carried(job, task.name):
        return not job.spec_of(task.name).primary and prevents_primary(job.spec, task.name)
    return settle(end_task(job, task, Cause.CANCEL, event.at), event.at).ending is not None


def _is_closing(job: Job, task: Task) -> bool:
    """Whether the job's end already reached the task. A task in its termination delay can still be cancelled."""
    attempt = task.current
    if job.ending is None:
        return False
    return job.ending.requeues or attempt is None or not attempt.live or attempt.stop is not None


def hold_waiting(job: Job, event: events.Hold) -> Optional[Job]:
    """Hold a job that has no resources yet, so that it gets none."""
    if job.state is not State.PENDING or job.granted_at is not None:
        return None
    # A user's hold does not replace an administrator's.
    by_admin = event.by_admin or (job.held and job.reason == "JobHeldAdmin")
    return replace(job, held=True, reason="JobHeldAdmin" if by_admin else "JobHeldUser")


def _release(job: Job, event: events.Release) -> Optional[Job]:
    if job.requeue_held and job.ending is not None:
        return replace(job, requeue_held=False)
    if not job.held or job.over:
        return None
    # The failover time counts from here: the cluster could not have started it before.
    offered_at = None if job.offered_at is None else event.at
    return replace(job, held=False, reason="None", offered_at=offered_at)


def _requeue(job: Job, event: events.Requeue) -> Optional[Job]:
    if job.over:
        # All of it runs again, from the first stage on.
        again = replace(leave_stage(job), requeue_held=event.hold, state=move(job.state, State.PENDING), stage=None)
        return reset(again)
    if job.granted_at is None or job.ending is not None:
        return None
    ending = Ending(Cause.REQUEUE, event.at, State.PENDING, "BeginTime", by=event.by, at_once=True)
    return replace(job, ending=ending, requeue_held=event.hold)


def _preempt(job: Job, event: events.Preempt) -> Optional[Job]:
    if job.over or job.granted_at is None or job.ending is not None:
        return None
    state, reason, _ = CONSEQUENCES[Cause.PREEMPTION]
    if event.requeue and job.spec.requeue is not False:
        # Not charged to a budget: as with a user's requeue, neither the job nor its nodes failed.
        state, reason = State.PENDING, "BeginTime"
    ending = Ending(Cause.PREEMPTION, event.at, state, reason, by=event.by, at_once=True, grace=event.grace)
    return replace(job, ending=ending)


def _restart(job: Job, event: events.Restart) -> Optional[Job]:
    if job.over or job.ending is not None or job.granted_at is None:
        return None
    names = (event.task,) if event.task else tuple(task.name for task in list_carried(job))
    cause = Cause.RESTART if event.task else Cause.GROUP_RESTART
    for name in names:
        task = find_task(job, name)
        if task is None or not is_carried(job, name):
            return None
        job = put_task(job, replace(task, wanted=cause) if task.live else wait_task(task, event.at))
    return job


def _signal(job: Job, event: events.Signal) -> Optional[Job]:
    return None if job.over or (event.task and find_task(job, event.task) is None) else job


def _set_time(job: Job, event: events.SetTime) -> Optional[Job]:
    if job.over or (event.task and find_task(job, event.task) is None):
        return None
    limit = 0 if event.time is None else event.time
    tasks = tuple(
        _limit_task(job, task, limit) if event.task in ("", task.name) and not task.over else task for task in job.tasks
    )
    return replace(job, tasks=tasks)


def _limit_task(job: Job, task: Task, limit: int) -> Task:
    attempt = task.current
    if attempt is not None and attempt.live and limit != (job.time_of(task.name) or 0):
        # The task is warned again, about the new end.
        task = put_attempt(task, replace(attempt, warned_at=None))
    return replace(task, time=limit)


def _set_priority(job: Job, event: events.SetPriority) -> Optional[Job]:
    return None if job.over else replace(job, priority=event.priority)


def _set_nice(job: Job, event: events.SetNice) -> Optional[Job]:
    return None if job.over else replace(job, nice=event.nice)


def _set_begin(job: Job, event: events.SetBegin) -> Optional[Job]:
    if job.state is not State.PENDING or job.granted_at is not None:
        return None
    reason = "None" if job.reason == "BeginTime" else job.reason
    return replace(job, begin=event.begin, backs_off=False, reason=reason)


def _set_dependency(job: Job, event: events.SetDependency) -> Optional[Job]:
    if job.state is not State.PENDING or job.granted_at is not None:
        return None
    reason = "None" if job.reason.startswith("Dependency") else job.reason
    return replace(job, dependency=decode(Dependency, event.dependency), resolved=(), reason=reason)


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    events.Cancel: _cancel,
    events.Hold: hold_waiting,
    events.Release: _release,
    events.Requeue: _requeue,
    events.Preempt: _preempt,
    events.Restart: _restart,
    events.Signal: _signal,
    events.SetTime: _set_time,
    events.SetPriority: _set_priority,
    events.SetNice: _set_nice,
    events.SetBegin: _set_begin,
    events.SetDependency: _set_dependency,
}
"""Each gives the job after the event; None where the event is late or makes no sense."""
