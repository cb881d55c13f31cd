"""Readiness: which task waits for which, the probe's answers, and the time by which a task must be ready."""

from __future__ import annotations

from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.execution import read_probe
from overspan.bridge.lifecycle.flushing import describe_flush
from overspan.bridge.lifecycle.lookup import find_task
from overspan.bridge.lifecycle.needs import list_unmet_needs
from overspan.bridge.lifecycle.outcomes import put_task
from overspan.bridge.lifecycle.probes import describe_probe
from overspan.bridge.lifecycle.stages import waits_its_turn
from overspan.bridge.model import events
from overspan.bridge.model.job import Job, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import Need, NeedKind, TaskSpec
from overspan.bridge.model.states import State

_UNTIL = {
    NeedKind.STARTED: "to start",
    NeedKind.OK: "to succeed",
    NeedKind.NOT_OK: "to fail",
    NeedKind.ENDED: "to end",
}


def reason_of(job: Job, task: Task) -> str:
    """Slurm's reason for a task: `Dependency` while it waits for another of its job."""
    if _waits(job, task):
        return "Dependency"
    return task.reason if task.state.terminal or task.attempts else job.reason


def describe_wait(job: Job, task: Task) -> str:
    """`t waits for s: tcp s-0:9999, 8 tries, connection refused`; empty for a task that waits for nothing."""
    attempt = task.current
    if attempt is not None and attempt.flush is not None and attempt.flushing:
        return f"{task.name} waits for its data: {describe_flush(attempt.flush)}"
    if not _waits(job, task):
        return ""
    return f"{task.name} waits for {'; '.join(_describe_need(job, need) for need in _unmet(job, task))}"


def describe_readiness(job: Job, name: str) -> str:
    """Who waits for the task to become ready, and what its probe last answered."""
    waiting = [task.name for task in job.tasks if _waits(job, task) and _needs_ready(_unmet(job, task), name)]
    probe = describe_probe(job, job.spec_of(name), job.task(name))
    if not waiting:
        return f"{name} is not ready: {probe}"
    return f"{', '.join(waiting)} {'waits' if len(waiting) == 1 else 'wait'} for {name}: {probe}"


def ready_deadline(job: Job, spec: TaskSpec, task: Task) -> Optional[float]:
    """When a running attempt must be ready; None while no task waits for it, or where the wait has no limit."""
    attempt = task.current
    if spec.ready is None or not spec.ready.timeout or task.ready_at is not None or job.ending is not None:
        return None
    if attempt is None or not attempt.live or attempt.begun_at is None:
        return None
    if not any(_waits(job, other) and _needs_ready(_unmet(job, other), task.name) for other in job.tasks):
        return None
    return attempt.begun_at + attempt.suspended + spec.ready.timeout


def _waits(job: Job, task: Task) -> bool:
    goes_on = job.ending is None and not job.over
    if goes_on and waits_its_turn(job, task.name):
        return True
    return (
        goes_on
        and job.granted_at is not None
        and task.state is State.PENDING
        and task.next_start is None
        and bool(_unmet(job, task))
    )


def _unmet(job: Job, task: Task) -> tuple[Need, ...]:
    return list_unmet_needs(job, job.spec_of(task.name))


def _needs_ready(needs: tuple[Need, ...], name: str) -> bool:
    return any(need.task == name and need.kind is NeedKind.READY for need in needs)


def _describe_need(job: Job, need: Need) -> str:
    task = job.task(need.task)
    if need.kind is not NeedKind.READY:
        return f"{need.task} {_UNTIL[need.kind]}"
    if not task.live:
        return f"{need.task} to start and become ready"
    return f"{need.task}: {describe_probe(job, job.spec_of(need.task), task)}"


def _probed(job: Job, event: events.Probed) -> Optional[Job]:
    task = find_task(job, event.task)
    if task is None or not task.live or len(task.attempts) - 1 != event.attempt or task.ready_at is not None:
        return None
    probe = read_probe(event)
    return None if probe == task.probe else put_task(job, replace(task, probe=probe))


HANDLERS: dict[type, Callable[[Job, Any], Optional[Job]]] = {events.Probed: _probed}
"""Each gives the job after the event; None where the event is late or makes no sense."""
