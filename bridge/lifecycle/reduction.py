"""`reduce(job, event)`: the next facts of a job.

A late, repeated or senseless event changes nothing but the `late` counter, so reports may arrive twice and in any order
after the end. Called by the supervisor, which decides for its groups, and by the daemon, which copies journals and
decides for the rest.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.outcomes import end_attempt, end_task, put_attempt, put_task, wait_task
from overspan.bridge.lifecycle.retries import charge_retry, restart_scope, retry_time
from overspan.bridge.lifecycle.settlement import reset, settle
from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge, find_cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Attempt, Ending, Job, NodeRun, Placement, Stop, Task
from overspan.bridge.model.spec import Form, RestartScope
from overspan.bridge.model.states import State, move


def reduce(job: Job, event: Event) -> Job:
    """The job after the event."""
    after: Optional[Job] = _HANDLERS[type(event)](job, event)
    if after is None:
        return replace(job, late=job.late + 1)
    return settle(after, event.at)


# --- reports ---------------------------------------------------------------------------------------------------------


def _queued(job: Job, event: events.Queued) -> Optional[Job]:
    if job.state is not State.PENDING or job.granted_at is not None or job.held:
        return None
    return replace(job, reason=event.reason)


def _granted(job: Job, event: events.Granted) -> Optional[Job]:
    if job.granted_at is not None or job.ending is not None or job.over:
        return None
    placements = tuple(Placement(*member) for member in event.members)
    return replace(job, granted_at=event.at, placements=placements, held=False)


def _refused(job: Job, event: events.Refused) -> Optional[Job]:
    if job.granted_at is not None or job.ending is not None or job.over:
        return None
    state, reason, _ = CONSEQUENCES[Cause.REFUSED]
    return replace(job, ending=Ending(Cause.REFUSED, event.at, state, reason))


def _node_started(job: Job, event: events.NodeStarted) -> Optional[Job]:
    found = _find_node(job, event.task, event.attempt, event.node, event.run)
    if found is None or found[2].started_at is not None:
        return None
    task, attempt, node = found
    attempt = _put_node(attempt, replace(node, started_at=event.at))
    if attempt.started_at is None and all(node.started_at is not None for node in attempt.nodes):
        attempt = replace(attempt, started_at=max(node.started_at or 0.0 for node in attempt.nodes))
        if attempt.stop is None:
            attempt = replace(attempt, state=State.RUNNING)
            task = replace(task, state=move(task.state, State.RUNNING), reason="None")
    return put_task(job, put_attempt(task, attempt))


def _node_ended(job: Job, event: events.NodeEnded) -> Optional[Job]:
    found = _find_node(job, event.task, event.attempt, event.node, event.run)
    if found is None:
        return None
    task, attempt, node = found
    node = replace(
        node,
        ended_at=event.at,
        exit_code=event.exit_code,
        signal=event.signal,
        cause=_cause_of(event),
        detail=event.detail,
    )
    if node.cause is not Cause.SUCCESS and attempt.stop is None and job.ending is None:
        task, node = _retry_node(job, task, node)
    attempt = _put_node(attempt, node)
    task = put_attempt(task, attempt)
    restarts = attempt.stop is None and any(node.next_start is not None for node in attempt.nodes)
    if restarts or any(node.live for node in attempt.nodes):
        return put_task(job, task)
    return end_attempt(job, task, attempt, event.at)


def _retry_node(job: Job, task: Task, node: NodeRun) -> tuple[Task, NodeRun]:
    """Under `restart: node`, the node's own restart, charged to its task."""
    spec = job.spec_of(task.name)
    if restart_scope(job, spec) is not RestartScope.NODE or spec.num_nodes == 1 or task.wanted is not None:
        return task, node
    charged = charge_retry(spec, task, node.cause or Cause.NODE, (node,))
    if charged is None:
        return task, node
    return charged, replace(node, next_start=retry_time(job, spec, charged, node.ended_at or 0.0))


def _task_ready(job: Job, event: events.TaskReady) -> Optional[Job]:
    task = _find_task(job, event.task)
    if task is None or not task.live or len(task.attempts) - 1 != event.attempt or task.ready_at is not None:
        return None
    return put_task(job, replace(task, ready_at=event.at))


def _launch_lost(job: Job, event: events.LaunchLost) -> Optional[Job]:
    if event.launch != job.launch or job.over:
        return None
    cause = find_cause(event.cause) or Cause.NODE
    cancelled = [task.name for task in job.tasks if task.wanted is Cause.CANCEL]
    job = _lose_attempts(job, cause, event)
    for name in cancelled:
        job = end_task(job, job.task(name), Cause.CANCEL, event.at)
    ending = job.ending
    if ending is None:
        recovered = _recover(job, cause, event.at)
        if recovered is not None:
            return recovered
        state, reason, _ = CONSEQUENCES[cause]
        ending = Ending(cause, event.at, state, reason, at_once=True)
    # An ending that requeues finds nothing live and puts the job back.
    return replace(job, ending=replace(ending, hold_until=None))


def _recover(job: Job, cause: Cause, at: float) -> Optional[Job]:
    """The job back in the queue on its first primary's budget; what a person cancelled stays so."""
    if CONSEQUENCES[cause].charge is not Charge.RECOVERIES or job.spec.requeue is False:
        return None
    spec = next(spec for spec in job.spec.tasks if spec.primary)
    charged = charge_retry(spec, job.task(spec.name), cause, ())
    if charged is None:
        return None
    begin = retry_time(job, spec, charged, at)
    again = reset(put_task(job, charged), at)
    tasks = tuple(old if _is_cancelled(old) else new for old, new in zip(job.tasks, again.tasks))
    return replace(again, tasks=tasks, begin=begin, reason="BeginTime")


def _is_cancelled(task: Task) -> bool:
    return task.state is State.CANCELLED and task.reason == CONSEQUENCES[Cause.CANCEL].reason


def _lose_attempts(job: Job, cause: Cause, event: events.LaunchLost) -> Job:
    tasks = []
    for task in job.tasks:
        attempt = task.current
        if attempt is not None and attempt.live:
            nodes = tuple(
                replace(node, ended_at=event.at, cause=cause) if node.live else replace(node, next_start=None)
                for node in attempt.nodes
            )
            state = CONSEQUENCES[cause].state
            lost = replace(attempt, nodes=nodes, state=state, ended_at=event.at, cause=cause, detail=event.detail)
            task = replace(put_attempt(task, lost), state=move(task.state, State.PENDING), ready_at=None, wanted=None)
        tasks.append(task)
    return replace(job, tasks=tuple(tasks))


# --- orders ----------------------------------------------------------------------------------------------------------


def _cancel(job: Job, event: events.Cancel) -> Optional[Job]:
    if event.task:
        return _cancel_task(job, event)
    if job.over:
        return None
    if job.ending is None or job.ending.cause is Cause.REQUEUE:
        ending = Ending(Cause.CANCEL, event.at, State.CANCELLED, by=event.by, at_once=True)
        return replace(job, ending=ending, requeue_held=False)
    if job.ending.at_once and job.ending.hold_until is None:
        return None
    # The outcome is fixed already; what is left ends now.
    return replace(job, ending=replace(job.ending, at_once=True, hold_until=None, by=event.by))


def _cancel_task(job: Job, event: events.Cancel) -> Optional[Job]:
    task = _find_task(job, event.task)
    if task is None or task.over or task.wanted is Cause.CANCEL or _is_closing(job, task):
        return None
    if task.live:
        return put_task(job, replace(task, wanted=Cause.CANCEL))
    return end_task(job, task, Cause.CANCEL, event.at)


def _is_closing(job: Job, task: Task) -> bool:
    """Whether the job's end has reached the task already; one that lives on during a delay can still be cancelled."""
    attempt = task.current
    if job.ending is None:
        return False
    return job.ending.cause is Cause.REQUEUE or attempt is None or not attempt.live or attempt.stop is not None


def _hold(job: Job, event: events.Hold) -> Optional[Job]:
    if job.state is not State.PENDING or job.granted_at is not None:
        return None
    # A user's hold does not soften an administrator's.
    by_admin = event.by_admin or (job.held and job.reason == "JobHeldAdmin")
    return replace(job, held=True, reason="JobHeldAdmin" if by_admin else "JobHeldUser")


def _release(job: Job, event: events.Release) -> Optional[Job]:
    if job.requeue_held and job.ending is not None:
        return replace(job, requeue_held=False)
    if not job.held or job.over:
        return None
    return replace(job, held=False, reason="None")


def _requeue(job: Job, event: events.Requeue) -> Optional[Job]:
    if job.over:
        return reset(replace(job, requeue_held=event.hold, state=move(job.state, State.PENDING)), event.at)
    if job.granted_at is None or job.ending is not None:
        return None
    ending = Ending(Cause.REQUEUE, event.at, State.PENDING, "BeginTime", by=event.by, at_once=True)
    return replace(job, ending=ending, requeue_held=event.hold)


def _restart(job: Job, event: events.Restart) -> Optional[Job]:
    if job.over or job.ending is not None or job.granted_at is None:
        return None
    names = (event.task,) if event.task else tuple(task.name for task in job.tasks)
    cause = Cause.RESTART if event.task else Cause.GROUP_RESTART
    for name in names:
        task = _find_task(job, name)
        if task is None:
            return None
        job = put_task(job, replace(task, wanted=cause) if task.live else wait_task(task, event.at))
    return job


def _signal(job: Job, event: events.Signal) -> Optional[Job]:
    return None if job.over or (event.task and _find_task(job, event.task) is None) else job


def _set_time(job: Job, event: events.SetTime) -> Optional[Job]:
    if job.over or (event.task and _find_task(job, event.task) is None):
        return None
    limit = 0 if event.time is None else event.time
    tasks = tuple(
        _limit_task(job, task, limit) if event.task in ("", task.name) and not task.over else task for task in job.tasks
    )
    return replace(job, tasks=tasks)


def _limit_task(job: Job, task: Task, limit: int) -> Task:
    attempt = task.current
    before = job.spec_of(task.name).time if task.time is None else task.time
    if attempt is not None and attempt.live and limit != (before or 0):
        # It is told again, about the new end.
        task = put_attempt(task, replace(attempt, warned_at=None))
    return replace(task, time=limit)


def _set_priority(job: Job, event: events.SetPriority) -> Optional[Job]:
    return None if job.over else replace(job, priority=event.priority)


# --- decisions -------------------------------------------------------------------------------------------------------


def _launch(job: Job, event: events.Launch) -> Optional[Job]:
    task = _find_task(job, event.task)
    if task is None or task.state is not State.PENDING or event.attempt != len(task.attempts):
        return None
    if job.granted_at is None or job.ending is not None:
        return None
    spec = job.spec_of(task.name)
    count = spec.num_nodes if spec.form is Form.RUN else 1
    nodes = tuple(NodeRun(index) for index in range(count))
    attempt = Attempt(event.attempt, State.CONFIGURING, event.at, nodes)
    task = replace(task, state=move(task.state, State.CONFIGURING), reason="None", next_start=None, ready_at=None)
    return put_task(job, replace(task, attempts=(*task.attempts, attempt)))


def _node_relaunch(job: Job, event: events.NodeRelaunch) -> Optional[Job]:
    task = _find_task(job, event.task)
    attempt = task.current if task else None
    if task is None or attempt is None or not attempt.live or attempt.number != event.attempt:
        return None
    node = next((node for node in attempt.nodes if node.index == event.node), None)
    if node is None or node.next_start is None or event.run != node.run + 1 or attempt.stop is not None:
        return None
    return put_task(job, put_attempt(task, _put_node(attempt, NodeRun(node.index, event.run))))


def _notice(job: Job, event: events.Notice) -> Optional[Job]:
    task = _find_task(job, event.task)
    if task is None or not task.live or task.noticed_at is not None:
        return None
    return put_task(job, replace(task, noticed_at=event.at))


def _warn(job: Job, event: events.Warn) -> Optional[Job]:
    task = _find_task(job, event.task)
    attempt = task.current if task else None
    if task is None or attempt is None or not attempt.live or attempt.number != event.attempt:
        return None
    if attempt.warned_at is not None:
        return None
    return put_task(job, put_attempt(task, replace(attempt, warned_at=event.at)))


def _terminate(job: Job, event: events.Terminate) -> Optional[Job]:
    task = _find_task(job, event.task)
    attempt = task.current if task else None
    if task is None or attempt is None or not attempt.live or attempt.number != event.attempt:
        return None
    cause = find_cause(event.cause)
    if cause is None or attempt.stop is not None:
        return None
    attempt = replace(attempt, state=State.COMPLETING, stop=Stop(cause, event.at, event.kill_at))
    task = put_attempt(replace(task, state=move(task.state, State.COMPLETING)), attempt)
    if any(node.live for node in attempt.nodes):
        return put_task(job, task)
    return end_attempt(job, task, attempt, event.at)


def _kill(job: Job, event: events.Kill) -> Optional[Job]:
    task = _find_task(job, event.task)
    attempt = task.current if task else None
    if task is None or attempt is None or not attempt.live or attempt.number != event.attempt:
        return None
    if attempt.stop is None or attempt.stop.killed_at is not None:
        return None
    return put_task(job, put_attempt(task, replace(attempt, stop=replace(attempt.stop, killed_at=event.at))))


def _hold_over(job: Job, event: events.HoldOver) -> Optional[Job]:
    if job.ending is None or job.ending.hold_until is None:
        return None
    return replace(job, ending=replace(job.ending, hold_until=None))


def _expire(job: Job, event: events.Expire) -> Optional[Job]:
    cause = find_cause(event.cause)
    if job.over or job.ending is not None or cause is None or cause not in (Cause.DEADLINE, Cause.NEVER_STARTED):
        return None
    state, reason, _ = CONSEQUENCES[cause]
    return replace(job, ending=Ending(cause, event.at, state, reason, at_once=True))


# --- looking things up -----------------------------------------------------------------------------------------------


def _find_task(job: Job, name: str) -> Optional[Task]:
    return next((task for task in job.tasks if task.name == name), None)


def _find_node(job: Job, name: str, number: int, index: int, run: int) -> Optional[tuple[Task, Attempt, NodeRun]]:
    """The node run of a live attempt that is still open; None for anything late, repeated or unknown."""
    task = _find_task(job, name)
    attempt = task.current if task else None
    if task is None or attempt is None or not attempt.live or attempt.number != number:
        return None
    if not 0 <= index < len(attempt.nodes):
        return None
    node = attempt.nodes[index]
    return (task, attempt, node) if node.run == run and node.live else None


def _put_node(attempt: Attempt, node: NodeRun) -> Attempt:
    return replace(attempt, nodes=tuple(node if old.index == node.index else old for old in attempt.nodes))


def _cause_of(event: events.NodeEnded) -> Cause:
    cause = find_cause(event.cause)
    if cause is not None:
        return cause
    if event.signal:
        return Cause.SIGNAL
    if event.exit_code:
        return Cause.EXIT
    # A cause of a later version: whatever it means, it is no success.
    return Cause.NODE if event.cause else Cause.SUCCESS


_HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    events.Queued: _queued,
    events.Granted: _granted,
    events.Refused: _refused,
    events.NodeStarted: _node_started,
    events.NodeEnded: _node_ended,
    events.TaskReady: _task_ready,
    events.LaunchLost: _launch_lost,
    events.Cancel: _cancel,
    events.Hold: _hold,
    events.Release: _release,
    events.Requeue: _requeue,
    events.Restart: _restart,
    events.Signal: _signal,
    events.SetTime: _set_time,
    events.SetPriority: _set_priority,
    events.Launch: _launch,
    events.NodeRelaunch: _node_relaunch,
    events.Notice: _notice,
    events.Warn: _warn,
    events.Terminate: _terminate,
    events.Kill: _kill,
    events.HoldOver: _hold_over,
    events.Expire: _expire,
}
