"""When Slurm may wait for a job's predecessors itself, and how that is written (sbatch(1), --dependency)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed

_MINUTE = 60


@dataclass(frozen=True)
class Predecessor:
    """What is known of a needed job: its id on its cluster, whether it is live there, whether it may start anew.

    For a singleton, `live` says that every earlier job of the name and user is live on the cluster.
    """

    cluster: str
    native_id: str = ""
    live: bool = False
    retryable: bool = True


@dataclass(frozen=True)
class Waiting:
    """How a dependency is waited for: by Slurm through `native` ids, or by Overspan (`native` is None) for `why`."""

    native: Mapping[JobNeed, str] | None
    why: str = ""


def plan_waiting(
    dependency: Dependency, predecessors: Mapping[JobNeed, Predecessor], met: frozenset[JobNeed], cluster: str
) -> Waiting:
    """Let Slurm wait where every need that is not met yet names a live job of the same cluster that cannot be retried.

    A vanished id counts as satisfied for `afterok` in Slurm, and a retried job has another id: both would start the
    dependant too early. Slurm's own waiting keeps the job's age in the queue.
    """
    if dependency.any and any(need in met for need in dependency.needs):
        return Waiting({})
    native: dict[JobNeed, str] = {}
    for need in dependency.needs:
        if need in met:
            continue
        found = predecessors.get(need)
        problem = _find_problem(need, found, cluster)
        if found is None or problem:
            return Waiting(None, problem)
        native[need] = found.native_id
    return Waiting(native)


def _find_problem(need: JobNeed, found: Predecessor | None, cluster: str) -> str:
    name = "an earlier job of this name" if need.kind is DependencyKind.SINGLETON else f"job {need.job}"
    if found is None:
        return f"{name} is not known on {cluster}"
    if found.cluster != cluster:
        return f"{name} runs on {found.cluster}"
    if not found.live or not (found.native_id or need.kind is DependencyKind.SINGLETON):
        return f"{name} is not live on {cluster}"
    if found.retryable:
        return f"{name} may be started again under another id"
    return ""


def is_retryable(job: Job) -> bool:
    """Whether a job may get another native id: groups after a loss, and tasks with a budget for the user's errors.

    A single script is requeued by Slurm itself under its own id.
    """
    if job.spec.group or len(job.spec.tasks) > 1:
        return any(task.retry.max_recoveries or _has_errors_budget(job, task.name) for task in job.spec.tasks)
    return any(_has_errors_budget(job, task.name) for task in job.spec.tasks) or len(job.spec.clusters) > 1


def _has_errors_budget(job: Job, task: str) -> bool:
    retry = job.spec.task(task).retry
    return bool(retry.max_restarts and (retry.max_restarts_on_errors or retry.recover_on_exit_codes))


def render_dependency(dependency: Dependency, native: Mapping[JobNeed, str]) -> str:
    """The --dependency value for the needs that have a native id, in their order; empty for none.

    `after` counts whole minutes, rounded up.
    """
    parts = []
    for need in dependency.needs:
        if need.kind is DependencyKind.SINGLETON and need in native:
            parts.append(need.kind.value)
        elif native.get(need):
            delay = f"+{-(-need.delay // _MINUTE)}" if need.delay else ""
            parts.append(f"{need.kind.value}:{native[need]}{delay}")
    return ("?" if dependency.any else ",").join(parts)


def join_dependencies(first: str, second: str) -> str | None:
    """Both values as one; None where they cannot be joined: one asks for all, the other for any."""
    if not first or not second:
        return first or second
    if "?" in first + second:
        return None
    return f"{first},{second}"
