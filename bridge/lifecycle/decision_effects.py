"""Reducers for decisions: how a job's facts change when a due decision is recorded."""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.execution import begin_attempt, stop_attempt
from overspan.bridge.lifecycle.failover import is_withdrawal, withdraw
from overspan.bridge.lifecycle.flushing import end_programs
from overspan.bridge.lifecycle.lookup import find_attempt, find_task, put_node
from overspan.bridge.lifecycle.outcomes import put_attempt, put_task
from overspan.bridge.model import events
from overspan.bridge.model.causes import CONSEQUENCES, Cause, find_cause
from overspan.bridge.model.job import Ending, Job, NodeRun
from overspan.bridge.model.records import replace
from overspan.bridge.model.states import State, move


def _launch(job: Job, event: events.Launch) -> Optional[Job]:
    task = find_task(job, event.task)
    if task is None or task.state is not State.PENDING or event.attempt != len(task.attempts):
        return None
    if job.granted_at is None or job.ending is not None:
        return None
    task = replace(task, state=move(task.state, State.CONFIGURING), reason="None", next_start=None, ready_at=None)
    return put_task(job, replace(task, attempts=(*task.attempts, begin_attempt(job, event))))


def _node_relaunch(job: Job, event: events.NodeRelaunch) -> Optional[Job]:
    found = find_attempt(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt = found
    node = next((node for node in attempt.nodes if node.index == event.node), None)
    if node is None or node.next_start is None or event.run != node.run + 1 or attempt.stop is not None:
        return None
    return put_task(job, put_attempt(task, put_node(attempt, NodeRun(node.index, event.run))))


def _notice(job: Job, event: events.Notice) -> Optional[Job]:
    task = find_task(job, event.task)
    if task is None or not task.live or task.noticed_at is not None:
        return None
    return put_task(job, replace(task, noticed_at=event.at))


def _warn(job: Job, event: events.Warn) -> Optional[Job]:
    found = find_attempt(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt = found
    if attempt.warned_at is not None:
        return None
    return put_task(job, put_attempt(task, replace(attempt, warned_at=event.at)))


def _terminate(job: Job, event: events.Terminate) -> Optional[Job]:
    found = find_attempt(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt = found
    cause = find_cause(event.cause)
    if cause is None or attempt.stop is not None or attempt.flushing:
        return None
    attempt = stop_attempt(attempt, cause, event)
    task = put_attempt(replace(task, state=move(task.state, State.COMPLETING)), attempt)
    if any(node.live for node in attempt.nodes):
        return put_task(job, task)
    return end_programs(job, task, attempt, event.at)


def _kill(job: Job, event: events.Kill) -> Optional[Job]:
    found = find_attempt(job, event.task, event.attempt)
    if found is None:
        return None
    task, attempt = found
    if attempt.stop is None or attempt.stop.killed_at is not None:
        return None
    return put_task(job, put_attempt(task, replace(attempt, stop=replace(attempt.stop, killed_at=event.at))))


def _hold_over(job: Job, event: events.HoldOver) -> Optional[Job]:
    if job.ending is None or job.ending.hold_until is None:
        return None
    return replace(job, ending=replace(job.ending, hold_until=None))


def _expire(job: Job, event: events.Expire) -> Optional[Job]:
    if is_withdrawal(event):
        return withdraw(job, event)
    cause = find_cause(event.cause)
    if job.over or job.ending is not None or cause is None or cause not in _EXPIRIES:
        return None
    state, reason, _ = CONSEQUENCES[cause]
    return replace(job, ending=Ending(cause, event.at, state, reason, at_once=True))


_EXPIRIES = (Cause.DEADLINE, Cause.NEVER_STARTED, Cause.DEPENDENCY)

HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {
    events.Launch: _launch,
    events.NodeRelaunch: _node_relaunch,
    events.Notice: _notice,
    events.Warn: _warn,
    events.Terminate: _terminate,
    events.Kill: _kill,
    events.HoldOver: _hold_over,
    events.Expire: _expire,
}
"""Each gives the job after the event; None where the event is late or makes no sense."""
