"""Reducers for reports: how a job's facts change when a cluster reports on its nodes and launches."""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.execution import end_node, place_members, start_node
from overspan.bridge.lifecycle.flushing import end_programs
from overspan.bridge.lifecycle.lookup import find_node, find_task, name_nodes, put_node
from overspan.bridge.lifecycle.outcomes import end_task, put_attempt, put_task
from overspan.bridge.lifecycle.retries import charge_retry, restart_scope, retry_time
from overspan.bridge.lifecycle.settlement import reset
from overspan.bridge.lifecycle.stages import is_carried
from overspan.bridge.model import events
from overspan.bridge.model.allocations import runs_daemon
from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge, find_cause
from overspan.bridge.model.job import Ending, Job, NodeRun, Placement, Resolution, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import RestartScope, TaskSpec
from overspan.bridge.model.states import State, move

_FIRST_PAUSE, _LONGEST_PAUSE = 60.0, 1800.0
"""Seconds before a group across is submitted again of which a part gave up at its start gate; doubled each time."""
_MOST_DOUBLINGS = 5


def _queued(job: Job, event: events.Queued) -> Optional[Job]:
    if event.task:
        task = find_task(job, event.task)
        waits = task is not None and task.state is State.CONFIGURING
        return put_task(job, replace(task, reason=event.reason)) if task is not None and waits else None
    if job.state is not State.PENDING or job.granted_at is not None or job.held:
        return None
    partition = event.partition or job.partition
    return replace(job, reason=event.reason, expected_start=event.until, partition=partition)


def _granted(job: Job, event: events.Granted) -> Optional[Job]:
    if job.over or (job.ending is not None and job.granted_at is None):
        return None
    placements = tuple(Placement(*member) for member in event.members)
    if job.granted_at is not None:
        moved = place_members(job, placements)
        return None if moved.placements == job.placements else moved
    # Where the stages before it ran stays known.
    placements = (*(place for place in job.placements if not is_carried(job, place.task)), *placements)
    # The cluster that granted the resources runs the job; the other bids end here.
    granted = replace(job, granted_at=event.at, placements=placements, held=False, expected_start=None, bids=())
    granted = replace(granted, gate_timeouts=0)
    return replace(granted, partition=event.partition) if event.partition else granted


def _refused(job: Job, event: events.Refused) -> Optional[Job]:
    if job.granted_at is not None or job.ending is not None or job.over:
        return None
    state, reason, _ = CONSEQUENCES[Cause.REFUSED]
    return replace(job, ending=Ending(Cause.REFUSED, event.at, state, reason, message=event.message))


def _node_started(job: Job, event: events.NodeStarted) -> Optional[Job]:
    found = find_node(job, event.task, event.attempt, event.node, event.run)
    if found is None or found[2].started_at is not None:
        return None
    task, attempt, node = found
    running = attempt.state is State.RUNNING
    attempt = start_node(attempt, node, event)
    if attempt.state is State.RUNNING and not running:
        task = replace(task, state=move(task.state, State.RUNNING), reason="None")
    return put_task(job, put_attempt(task, attempt))


def _node_ended(job: Job, event: events.NodeEnded) -> Optional[Job]:
    found = find_node(job, event.task, event.attempt, event.node, event.run)
    if found is None:
        return None
    task, attempt, node = found
    node = end_node(node, event)
    if not event.cause and attempt.stop is None and runs_daemon(job.spec_of(task.name), node.index):
        # A step daemon runs until it is ended. If it ended by itself, its node is lost.
        node = replace(node, cause=Cause.NODE, detail=node.detail or "the step daemon ended")
    if node.cause is not Cause.SUCCESS and attempt.stop is None and job.ending is None:
        task, node = _retry_node(job, task, node)
    attempt = put_node(attempt, node)
    task = put_attempt(task, attempt)
    restarts = attempt.stop is None and any(node.next_start is not None for node in attempt.nodes)
    if restarts or any(node.live for node in attempt.nodes):
        return put_task(job, task)
    return end_programs(job, task, attempt, event.at)


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
    task = find_task(job, event.task)
    if task is None or not task.live or len(task.attempts) - 1 != event.attempt or task.ready_at is not None:
        return None
    return put_task(job, replace(task, ready_at=event.at))


def _launch_lost(job: Job, event: events.LaunchLost) -> Optional[Job]:
    if event.launch != job.launch or job.over:
        return None
    # A cluster that reports whole seconds may put the end before the start.
    event = event._replace(at=max([event.at, *_live_starts(job)]))
    cause = find_cause(event.cause) or Cause.NODE
    cancelled = [task.name for task in job.tasks if task.wanted is Cause.CANCEL]
    payer = _find_payer(job)
    job = _lose_attempts(job, cause, event)
    for name in cancelled:
        job = end_task(job, job.task(name), Cause.CANCEL, event.at)
    ending = job.ending
    if ending is None and cause is Cause.NEVER_STARTED and job.spec.across and job.granted_at is None:
        return _ask_again(job, event.at)
    if ending is None:
        recovered = _recover(job, payer, cause, event.at)
        if recovered is not None:
            return recovered
        state, reason, _ = CONSEQUENCES[cause]
        ending = Ending(cause, event.at, state, reason, at_once=True)
    # Nothing is live, so an ending that requeues puts the job back at once.
    return replace(job, ending=replace(ending, hold_until=None))


def _live_starts(job: Job) -> list[float]:
    """The start times of the live node runs."""
    attempts = [task.current for task in job.tasks if task.current is not None and task.current.live]
    return [node.started_at for attempt in attempts for node in attempt.nodes if node.live and node.started_at]


def _find_payer(job: Job) -> TaskSpec:
    """The task charged for a lost launch: a primary that ran, else any that ran, else the first primary or task.

    A lost launch does not show which task was hit.
    """
    carried = [spec for spec in job.spec.tasks if is_carried(job, spec.name)]
    ran = [spec for spec in carried if job.task(spec.name).live]
    primaries = [spec for spec in carried if spec.primary]
    return next((spec for spec in ran if spec.primary), (ran or primaries or carried)[0])


def _ask_again(job: Job, at: float) -> Job:
    """Queue a group across again, one of whose parts gave its nodes back at its start gate.

    Nothing has begun, so no budget pays, and the launch is no restart. It waits longer each time, so that a part which
    never fits does not have the others' nodes held for ever.
    """
    begin = at + min(_FIRST_PAUSE * 2 ** min(job.gate_timeouts, _MOST_DOUBLINGS), _LONGEST_PAUSE)
    again = reset(replace(job, unstarted=job.unstarted + 1, gate_timeouts=job.gate_timeouts + 1))
    tasks = tuple(old if old.over else new for old, new in zip(job.tasks, again.tasks))
    reason = job.reason if job.held else "BeginTime"
    return replace(again, tasks=tasks, begin=begin, backs_off=True, held=job.held, reason=reason)


def _recover(job: Job, payer: TaskSpec, cause: Cause, at: float) -> Optional[Job]:
    """Queue the job again on a task's budget. Tasks that succeeded or that a user cancelled stay as they are."""
    if CONSEQUENCES[cause].charge is not Charge.RECOVERIES or job.spec.requeue is False:
        return None
    charged = charge_retry(payer, job.task(payer.name), cause, ())
    if charged is None:
        return None
    begin = retry_time(job, payer, charged, at)
    again = reset(put_task(job, charged))
    together = restart_scope(job, payer) is RestartScope.GROUP
    tasks = tuple(
        old if _is_cancelled(old) or (old.state is State.COMPLETED and not together) else new
        for old, new in zip(job.tasks, again.tasks)
    )
    reason = job.reason if job.held else "BeginTime"
    return replace(again, tasks=tasks, begin=begin, backs_off=True, held=job.held, reason=reason)


def _is_cancelled(task: Task) -> bool:
    return task.state is State.CANCELLED and task.reason == CONSEQUENCES[Cause.CANCEL].reason


def _lose_attempts(job: Job, cause: Cause, event: events.LaunchLost) -> Job:
    tasks = []
    for task in job.tasks:
        attempt = task.current
        if attempt is not None and attempt.live:
            ends = (
                replace(node, ended_at=event.at, cause=cause) if node.live else replace(node, next_start=None)
                for node in attempt.nodes
            )
            nodes = name_nodes(job, task.name, ends)
            state = CONSEQUENCES[cause].state
            lost = replace(attempt, nodes=nodes, state=state, ended_at=event.at, cause=cause, detail=event.detail)
            task = replace(put_attempt(task, lost), state=move(task.state, State.PENDING), ready_at=None, wanted=None)
        tasks.append(task)
    return replace(job, tasks=tuple(tasks))


def _resolved(job: Job, event: events.Resolved) -> Optional[Job]:
    known = any(entry.place == event.place for entry in job.resolved)
    if job.over or known or not 0 <= event.place < len(job.dependency.needs):
        return None
    return replace(job, resolved=(*job.resolved, Resolution(event.place, event.met_at)))


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    events.Queued: _queued,
    events.Granted: _granted,
    events.Refused: _refused,
    events.NodeStarted: _node_started,
    events.NodeEnded: _node_ended,
    events.TaskReady: _task_ready,
    events.LaunchLost: _launch_lost,
    events.Resolved: _resolved,
}
"""Each gives the job after the event; None where the event is late or makes no sense."""
