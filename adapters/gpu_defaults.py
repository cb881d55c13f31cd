"""Default CPUs and memory for each GPU (`gpu_defaults`), cut to what the nodes have. Pure.

These are defaults and no requests, so they never keep a task from a node that has its GPUs, and never refuse a job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import GpuDefaults, Gpus, Resources
from overspan.bridge.model.spec import TaskSpec

FACTORS = (0.75, 0.5, 0.25, 0.1, 0.0)
"""Parts of the defaults that are tried, one after another, where the tasks of a group do not fit with all of them."""


class Sized(Protocol):
    """A node, or a size of nodes: CPUs, MiB, GPUs and their kind."""

    @property
    def cpus(self) -> float: ...
    @property
    def memory(self) -> int: ...
    @property
    def gpus(self) -> int: ...
    @property
    def gpu_kind(self) -> str: ...


def bound_gpu_defaults(job: Job, nodes: Sequence[Sized], portion: float = 1.0) -> Job:
    """The job with at most that portion of its GPUs' share of the smallest node that has them.

    Without nodes, or where none has the GPUs, the defaults are as they were.
    """

    def bound(resources: Resources, defaults: GpuDefaults) -> GpuDefaults:
        for node in nodes:
            if node.gpus and any(_has(node, gpus) for gpus in resources.gpus):
                share = portion / node.gpus
                defaults = defaults.bounded(node.cpus * share, int(node.memory * share))
        return defaults

    return _change(job, bound)


def list_scaled(job: Job) -> Iterator[Job]:
    """The job as it is, then with ever smaller defaults, down to none."""
    yield job
    if any(task.resources.gpu_defaults and task.resources.gpus for task in job.spec.tasks):
        for factor in FACTORS:
            yield scale_gpu_defaults(job, factor)


def scale_gpu_defaults(job: Job, factor: float) -> Job:
    """The job with a part of its defaults."""
    return _change(job, lambda resources, defaults: defaults.scaled(factor))


def _has(node: Sized, gpus: Gpus) -> bool:
    kind, known = gpus.kind.lower(), node.gpu_kind.lower()
    return node.gpus >= gpus.count and (not kind or not known or known.startswith(kind))


def _change(job: Job, change: Callable[[Resources, GpuDefaults], GpuDefaults]) -> Job:
    tasks = tuple(_change_task(task, change) for task in job.spec.tasks)
    if all(new is old for new, old in zip(tasks, job.spec.tasks, strict=True)):
        return job
    return replace(job, spec=replace(job.spec, tasks=tasks))


def _change_task(task: TaskSpec, change: Callable[[Resources, GpuDefaults], GpuDefaults]) -> TaskSpec:
    resources = task.resources
    if resources.gpu_defaults is None or not resources.gpus:
        return task
    changed = change(resources, resources.gpu_defaults)
    if changed == resources.gpu_defaults:
        return task
    return replace(task, resources=replace(resources, gpu_defaults=changed))
