"""Groups across clusters: which part of a job each of them has."""

from __future__ import annotations

from collections.abc import Iterable

from overspan.bridge.model.job import Job
from overspan.bridge.model.records import replace
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

_SEPARATOR = "+"
"""No name of a configured cluster has it."""


def join_clusters(names: Iterable[str]) -> str:
    """The name of the place that several clusters are together: `leo+kube`."""
    return _SEPARATOR.join(dict.fromkeys(names))


def split_clusters(name: str) -> tuple[str, ...]:
    """The clusters of such a place; empty for the name of a single one."""
    names = name.split(_SEPARATOR)
    return tuple(names) if len(names) > 1 else ()


def list_parts(job: Job) -> tuple[str, ...]:
    """The clusters that have a part of the job's launch: some task of theirs is not over."""
    return tuple(
        dict.fromkeys(spec.cluster for spec in job.spec.tasks if spec.cluster and not job.task(spec.name).over)
    )


def list_own_tasks(job: Job) -> tuple[TaskSpec, ...]:
    """The tasks that run where the job is given: of a group across (`take_part`) those that are not over there."""
    if not job.spec.across:
        return job.spec.tasks
    return tuple(spec for spec in job.spec.tasks if not job.task(spec.name).over)


def rank_parts(job: Job) -> list[tuple[str, ...]]:
    """The parts in the order in which they are asked for: together those with as many GPUs, those with the most last.

    What one cluster holds while another cannot be asked is of the cheaper sort then.
    """
    gpus = dict.fromkeys(list_parts(job), 0)
    for spec in job.spec.tasks:
        if spec.cluster in gpus and not job.task(spec.name).over:
            gpus[spec.cluster] += spec.num_nodes * sum(each.milli for each in spec.resources.gpus[:1])
    return [tuple(name for name in gpus if gpus[name] == count) for count in sorted(set(gpus.values()))]


def place_task(job: Job, task: str, cluster: str) -> str:
    """The cluster of a task, in a job that is on `cluster` or on the clusters that this name joins."""
    return job.spec.task(task).cluster if split_clusters(cluster) else cluster


def take_part(job: Job, cluster: str) -> Job:
    """The job as one of its clusters is given it: tasks elsewhere are over there, so their names alone are known."""
    elsewhere = {spec.name for spec in job.spec.tasks if spec.cluster != cluster}
    tasks = tuple(
        replace(task, state=State.COMPLETED) if task.name in elsewhere and not task.over else task for task in job.tasks
    )
    return replace(job, tasks=tasks)
