"""Retries: whether a failure is followed by another attempt, on which budget, and when."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional
from zlib import crc32

from overspan.bridge.model.causes import CONSEQUENCES, Cause, Charge
from overspan.bridge.model.job import Job, NodeRun, Task
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import Backoff, OnFailure, RestartScope, TaskSpec


def backoff_delay(backoff: Backoff, retries: int, seed: str) -> float:
    """Seconds before the next attempt; the jitter comes from `seed`, so that a replay gives the same time."""
    try:
        delay = min(backoff.first * backoff.factor ** min(retries, 64), backoff.limit)
    except OverflowError:
        delay = backoff.limit
    spread = crc32(seed.encode()) / 0xFFFFFFFF * 2 - 1
    return max(0.0, delay * (1 + backoff.jitter * spread))


def charge_retry(spec: TaskSpec, task: Task, cause: Cause, nodes: Sequence[NodeRun]) -> Optional[Task]:
    """The task with the retry taken from its budget; None when no budget allows one."""
    policy = spec.retry
    if task.restarts >= policy.max_restarts:
        return None
    charge = CONSEQUENCES[cause].charge
    if charge is Charge.RECOVERIES:
        if task.recoveries >= policy.max_recoveries:
            return None
        return replace(task, recoveries=task.recoveries + 1, restarts=task.restarts + 1)
    if charge is not Charge.ERRORS:
        return None
    if any(_shell_code(node) in policy.recover_on_exit_codes for node in nodes):
        return replace(task, restarts=task.restarts + 1)
    keeps_restarting = not spec.primary and spec.on_failure is OnFailure.RESTART
    if keeps_restarting or task.errors < policy.max_restarts_on_errors:
        return replace(task, errors=task.errors + 1, restarts=task.restarts + 1)
    return None


def _shell_code(node: NodeRun) -> Optional[int]:
    """The exit code as a shell has it (128 + signal); None where the program did not end by itself."""
    if node.cause is Cause.SIGNAL:
        return 128 + node.signal
    return node.exit_code if node.cause is Cause.EXIT else None


def retry_time(job: Job, spec: TaskSpec, task: Task, at: float) -> float:
    """When the retry that was just charged to the task is due."""
    seed = f"{job.id}.{task.name}.{task.restarts}"
    return at + backoff_delay(spec.retry.backoff, task.restarts - 1, seed)


def restart_scope(job: Job, spec: TaskSpec) -> RestartScope:
    """What restarts when a node of that task is lost."""
    return spec.restart or job.spec.restart or RestartScope.TASK
