"""Changes of what a waiting job asks for: sizes, files and names that stand in its spec. Pure.

`scontrol update` may change them while no cluster has the job (held, or before its begin time or dependency).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from overspan.bridge.model.errors import Conflict, InvalidRequest
from overspan.bridge.model.ids import IndexRange
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import gres_gpus, parse_gres
from overspan.bridge.model.slurm.words import BAD_GRES, NOT_PENDING
from overspan.bridge.model.spec import Candidate, JobSpec, RetryPolicy, TaskSpec, demand_of


def amend(job: Job, values: Mapping[str, Any]) -> Job:
    """The job with other words in its spec; `values` by the names of AMENDABLE.

    Raises Conflict where the job's form does not allow it, InvalidRequest for a value that is none.
    """
    if job.element is not None:
        raise Conflict(f"job {job.id}: an element has its array's spec", remedy=f"change the array {job.element.array}")
    if job.array is not None and _count(job.array.waiting + job.array.cancelled) < _count_all(job):
        raise Conflict(f"job {job.id}: {NOT_PENDING}", remedy="elements of it have started")
    spec = job.spec
    for name, value in values.items():
        spec = _amend_places(spec, job.candidate, name, value)
    return replace(job, spec=spec)


def _amend_places(spec: JobSpec, present: int, name: str, value: Any) -> JobSpec:
    """Change what is asked for in every place of the job's list; a partition is the present place's alone."""
    change = AMENDABLE[name]
    candidates = tuple(
        candidate
        if name == "partition" and number != present
        else _record(change(spec.take(candidate), value), candidate)
        for number, candidate in enumerate(spec.candidates)
    )
    return replace(change(spec, value), candidates=candidates)


def _record(spec: JobSpec, candidate: Candidate) -> Candidate:
    return replace(candidate, demands=tuple(map(demand_of, spec.tasks)), partition=spec.partition)


def _count(ranges: tuple[IndexRange, ...]) -> int:
    return sum(len(part.values()) for part in ranges)


def _count_all(job: Job) -> int:
    return _count(job.spec.array.ranges) if job.spec.array is not None else 0


def _of_job(name: str) -> Callable[[JobSpec, Any], JobSpec]:
    return lambda spec, value: replace(spec, **{name: value})


def _of_task(change: Callable[[TaskSpec, Any], TaskSpec]) -> Callable[[JobSpec, Any], JobSpec]:
    def amend_task(spec: JobSpec, value: Any) -> JobSpec:
        if len(spec.tasks) != 1:
            raise Conflict("the tasks of a group have sizes of their own", remedy="cancel it and submit it again")
        return replace(spec, tasks=(change(spec.tasks[0], value),))

    return amend_task


def _set_nodes(task: TaskSpec, value: int) -> TaskSpec:
    return replace(task, num_nodes=value)


def _set_cpus(task: TaskSpec, value: int) -> TaskSpec:
    """CPUs of the whole job, as NumCPUs counts them."""
    return replace(task, resources=replace(task.resources, cpus=float(-(-value // task.num_nodes))))


def _set_tasks(task: TaskSpec, value: int) -> TaskSpec:
    return replace(task, ntasks=value)


def _set_cpus_per_task(task: TaskSpec, value: int) -> TaskSpec:
    on_node = task.ntasks_per_node or -(-(task.ntasks or task.num_nodes) // task.num_nodes)
    return replace(task, cpus_per_task=value, resources=replace(task.resources, cpus=float(on_node * value)))


def _set_memory(task: TaskSpec, value: int) -> TaskSpec:
    return replace(task, resources=replace(task.resources, memory_mib=value, memory_mib_per_cpu=None))


def _set_memory_per_cpu(task: TaskSpec, value: int) -> TaskSpec:
    return replace(task, resources=replace(task.resources, memory_mib=None, memory_mib_per_cpu=value))


def _set_gres(task: TaskSpec, value: str) -> TaskSpec:
    try:
        gpus, others = gres_gpus(parse_gres(value) if value else ())
    except ValueError as error:
        raise InvalidRequest(BAD_GRES, remedy=str(error)) from None
    return replace(task, resources=replace(task.resources, gpus=gpus, gres=others))


def _set_requeue(spec: JobSpec, value: bool) -> JobSpec:
    retry = RetryPolicy() if value else RetryPolicy(max_recoveries=0)
    return replace(spec, requeue=value, tasks=tuple(replace(task, retry=retry) for task in spec.tasks))


def _set_output(spec: JobSpec, value: str) -> JobSpec:
    path = os.path.join(spec.origin.directory, value) if value else ""
    return _of_task(lambda task, text: replace(task, streams=replace(task.streams, output=text)))(spec, path)


AMENDABLE: Mapping[str, Callable[[JobSpec, Any], JobSpec]] = {
    "account": _of_job("account"),
    "qos": _of_job("qos"),
    "partition": _of_job("partition"),
    "requeue": _set_requeue,
    "nodes": _of_task(_set_nodes),
    "cpus": _of_task(_set_cpus),
    "tasks": _of_task(_set_tasks),
    "cpus_per_task": _of_task(_set_cpus_per_task),
    "memory": _of_task(_set_memory),
    "memory_per_cpu": _of_task(_set_memory_per_cpu),
    "gres": _of_task(_set_gres),
    "stdout": _set_output,
}
"""How each is changed: memory in MiB, `cpus` of the whole job, `stdout` as a file name pattern of sbatch."""
