"""Texts about a readiness probe: what it tries, how often it did, and its last answer."""

from __future__ import annotations

from overspan.bridge.model.job import Job, Task
from overspan.bridge.model.names import member_name, one_line
from overspan.bridge.model.spec import Ready, ReadyKind, TaskSpec

_MOST_TARGET = 60


def describe_probe(job: Job, spec: TaskSpec, task: Task) -> str:
    """`tcp s-0:9999, 8 tries, connection refused`; without the last two before the first answer."""
    if spec.ready is None:
        return "it has no probe"
    parts = [_describe_target(spec.ready, spec.name)]
    attempt = task.current
    if task.probe is not None and attempt is not None and task.probe.attempt == attempt.number:
        parts.append(f"{task.probe.tries} {'try' if task.probe.tries == 1 else 'tries'}")
        parts.append(task.probe.answer)
    return ", ".join(filter(None, parts))


def describe_overdue(job: Job, spec: TaskSpec, task: Task) -> str:
    """Why an attempt was ended that did not become ready."""
    seconds = spec.ready.timeout if spec.ready is not None else 0
    return f"not ready within {seconds:g} s: {describe_probe(job, spec, task)}"


def _describe_target(ready: Ready, name: str) -> str:
    target = one_line(ready.target, _MOST_TARGET)
    if ready.kind not in (ReadyKind.TCP, ReadyKind.HTTP):
        return f"{ready.kind.value} {target}"
    try:
        host = member_name(name, 0)
    except ValueError:
        host = name
    return f"{ready.kind.value} {host}:{target}"
