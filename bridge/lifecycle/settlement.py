"""Derives the job's own state, after each event, from its tasks and from the end that was decided."""

from __future__ import annotations

from overspan.bridge.lifecycle.flushing import FLUSHING
from overspan.bridge.lifecycle.needs import needs_lost
from overspan.bridge.lifecycle.outcomes import end_task
from overspan.bridge.lifecycle.stages import is_carried, list_carried, move_on
from overspan.bridge.lifecycle.suspension import end_suspension
from overspan.bridge.model.causes import CONSEQUENCES, Cause
from overspan.bridge.model.job import Ending, Job, Task, first_stage
from overspan.bridge.model.records import replace
from overspan.bridge.model.states import State, move

_MEMORY_SIGNAL = 125
_BY_TASK = (Cause.PRIMARY_FAILED, Cause.AUXILIARY_FAILED)


def settle(job: Job, at: float) -> Job:
    """Skip tasks that can never start, go on to the next stage, close what the job's end closes, derive its state."""
    if job.ending is None and not job.over:
        job = _skip(job, at)
    if job.ending is None and not job.over:
        job = _end_part(job, at) if job.stage is not None and job.stage.followed else move_on(job, at)
    if job.ending is not None:
        job = _close_waiting(end_suspension(job, at), job.ending, at)
        if not any(task.live for task in job.tasks):
            if job.ending is not None and job.ending.requeues:
                job = reset(job)
            elif job.ending is not None and job.ending.hold_until is None and not job.over:
                return _close(job, job.ending, at)
    if job.over:
        return job
    state, reason = _derive(job)
    if state is State.RUNNING and job.started_at is None:
        job = replace(job, started_at=at)
    return replace(job, state=move(job.state, state), reason=reason)


def _skip(job: Job, at: float) -> Job:
    """End the tasks whose needs can never be met, and then those that wait for them."""
    found = True
    while found and job.ending is None:
        found = False
        for spec in job.spec.tasks:
            task = job.task(spec.name)
            if spec.needs and task.state is State.PENDING and job.ending is None and needs_lost(job, spec):
                job = end_task(job, task, Cause.DEPENDENCY, at)
                found = True
    return job


def _end_part(job: Job, at: float) -> Job:
    """The end of a stage that is carried alone and that primaries follow: all of its tasks have ended."""
    if not all(task.over for task in list_carried(job)):
        return job
    return replace(job, ending=Ending(Cause.PRIMARIES_DONE, at, State.COMPLETED))


def reset(job: Job) -> Job:
    """The job back in the queue, with all its counters and past attempts. Stages before the present one stay done."""
    return replace(
        job,
        tasks=tuple(_reset_task(task) if is_carried(job, task.name) else task for task in job.tasks),
        stage=first_stage(job.spec, job.next_launch) if job.stage is None else job.stage,
        state=move(job.state, State.PENDING),
        held=job.requeue_held,
        reason="JobHeldUser" if job.requeue_held else "None",
        requeue_held=False,
        granted_at=None,
        started_at=None,
        ended_at=None,
        placements=tuple(place for place in job.placements if not is_carried(job, place.task)),
        ending=None,
        begin=None,
        backs_off=False,
        expected_start=None,
        partition="",
        exit_code=0,
        signal=0,
        launch=job.next_launch,
        newest=job.next_launch,
        unstarted=job.unstarted + job.next_launch - job.launch - 1,
        bids=(),
        suspended_at=None,
        suspended=0.0,
    )


def _reset_task(task: Task) -> Task:
    return replace(
        task,
        state=move(task.state, State.PENDING),
        reason="None",
        next_start=None,
        ready_at=None,
        noticed_at=None,
        ended_at=None,
        wanted=None,
    )


def _close_waiting(job: Job, ending: Ending, at: float) -> Job:
    """End the tasks that are not running: they will not start again."""
    if ending.requeues or all(task.over or task.live for task in job.tasks):
        return job
    state, reason, _ = CONSEQUENCES[ending.cause]
    if state is State.COMPLETED and ending.cause is not Cause.SUCCESS:
        state = State.CANCELLED
    return replace(
        job,
        tasks=tuple(task if task.over or task.live else _close_task(task, state, reason, at) for task in job.tasks),
    )


def _close_task(task: Task, state: State, reason: str, at: float) -> Task:
    return replace(task, state=move(task.state, state), reason=reason, next_start=None, wanted=None, ended_at=at)


def _close(job: Job, ending: Ending, at: float) -> Job:
    exit_code, signal = _codes(job, ending)
    # Reports may arrive in another order than the ends happened.
    ends = [attempt.ended_at for task in job.tasks for attempt in task.attempts[-1:] if attempt.ended_at is not None]
    return replace(
        job,
        state=move(job.state, ending.state),
        reason=ending.reason,
        ended_at=max([at, *ends]),
        exit_code=exit_code,
        signal=signal,
    )


def _codes(job: Job, ending: Ending) -> tuple[int, int]:
    """The exit code and signal of the task that decided the end; as in Slurm, only failures of the work have any.

    Out of memory is 0:125; TIMEOUT, CANCELLED, NODE_FAIL and the others are 0:0 (sacct, measured on 22.05).
    """
    if ending.state is State.OUT_OF_MEMORY:
        return 0, _MEMORY_SIGNAL
    if ending.state is not State.FAILED:
        return 0, 0
    primary = ending.cause is not Cause.AUXILIARY_FAILED
    for task in job.tasks:
        attempt = task.current
        decided = task.ended_at == ending.at and job.spec_of(task.name).primary is primary
        if ending.cause in _BY_TASK and not decided:
            continue
        if attempt is not None and task.state not in (State.COMPLETED, State.CANCELLED):
            return attempt.exit_code, attempt.signal
    return 0, 0


def _find_trouble(job: Job) -> str:
    """Why a granted attempt does not start, if known."""
    reasons = (task.reason for task in job.tasks if task.state is State.CONFIGURING)
    return next((reason for reason in reasons if reason != "None"), "None")


def _only_flushes(job: Job) -> bool:
    """Whether nothing is left of the launch but data on its way."""
    left = [task for task in list_carried(job) if not task.over]
    return bool(left) and all(task.flushing for task in left)


def _derive(job: Job) -> tuple[State, str]:
    if job.ending is not None:
        if job.ending.hold_until is not None:
            return State.COMPLETING, "HeldOnFailure"
        reason = FLUSHING if _only_flushes(job) else "None"
        return (State.COMPLETING, reason) if job.granted_at is not None else (job.state, job.reason)
    if job.granted_at is None:
        return State.PENDING, job.reason
    if job.suspended_at is not None:
        return State.SUSPENDED, "None"
    # A resumed job is RUNNING again, even if all its tasks wait.
    before = State.RUNNING if job.state is State.SUSPENDED else job.state
    carried = list_carried(job)
    if _only_flushes(job):
        return State.COMPLETING, FLUSHING
    states = {task.state for task in carried}
    if State.RUNNING in states:
        return State.RUNNING, "None"
    if State.COMPLETING in states:
        # An attempt is ending while the job goes on: the job's state stays.
        return (before if before is not State.PENDING else State.CONFIGURING), "None"
    if State.CONFIGURING in states or any(task.state is State.PENDING and task.next_start is None for task in carried):
        return State.CONFIGURING if before in (State.PENDING, State.CONFIGURING) else before, _find_trouble(job)
    return State.PENDING, "BeginTime"
