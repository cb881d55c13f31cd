"""How launches are booked on this machine, and the queue of waiting jobs. Pure.

A launch is booked as a whole or not at all. Where its tasks run one after the other (a pipeline that starts together;
those of others are launches of their own) it is booked for the largest. The queue is strict, in the order of `Rank`: no
job overtakes one ahead of it, so small jobs never starve a large one. A task that shares another's node still books its
own CPUs, because all nodes are this one machine.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overspan.adapters.bookings import BookedMember as BookedMember
from overspan.adapters.bookings import Booking as Booking
from overspan.adapters.bookings import Bookings as Bookings
from overspan.adapters.bookings import Capacity as Capacity
from overspan.adapters.bookings import Variant as Variant
from overspan.adapters.bookings import is_kind as is_kind
from overspan.adapters.gpu_defaults import bound_gpu_defaults, list_scaled
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import list_own_tasks
from overspan.bridge.model.ranks import Rank
from overspan.bridge.model.resources import MILLI
from overspan.bridge.model.spec import NeedKind, TaskSpec

_MOST_VARIANTS = 64
AFTER_THE_END = (NeedKind.OK, NeedKind.NOT_OK, NeedKind.ENDED)


class _Machine(NamedTuple):
    """The machine as a node."""

    cpus: float
    memory: int
    gpus: int
    gpu_kind: str = ""


def list_variants(job: Job, capacity: Capacity) -> tuple[Variant, ...]:
    """The variants in which the job can be booked, one for each choice of accelerators, preferred ones first.

    A node that names no CPUs books one, or those that belong to its GPUs. Since that is only a default, such nodes
    together never ask for more than the rest of the machine.
    """
    fitted = fit_gpu_defaults(job, capacity)
    variants = list_choices(fitted)
    if Bookings(capacity).fits(variants):
        return variants
    return list_choices(fitted, _default_cpus(list_own_tasks(fitted), capacity))


def fit_gpu_defaults(job: Job, capacity: Capacity) -> Job:
    """The job with its GPUs' default CPUs and memory scaled down so far that all of it fits on this machine."""
    if not any(task.resources.gpu_defaults and task.resources.gpus for task in job.spec.tasks):
        return job
    for one in list_scaled(bound_gpu_defaults(job, [_as_node(capacity)])):
        if Bookings(capacity).fits(list_choices(one)):
            break
    return one


def _as_node(capacity: Capacity) -> _Machine:
    return _Machine(capacity.cpu_milli / MILLI, capacity.memory_mib, len(capacity.gpus))


def list_choices(job: Job, default: int = MILLI) -> tuple[Variant, ...]:
    """What the job's members need, for each choice of accelerators; `default`: milli-CPUs of one that names none."""
    tasks = list_own_tasks(job)
    choices = [task.resources.needs(_named_cpus(task) or default / MILLI) for task in tasks]
    variants = itertools.islice(itertools.product(*choices), _MOST_VARIANTS)
    phases = range(len(choices)) if _is_pipeline(tasks) else [0] * len(choices)
    return tuple(
        tuple(
            BookedMember(task.name, index, need, phase)
            for task, need, phase in zip(tasks, needs, phases, strict=True)
            for index in range(task.num_nodes)
        )
        for needs in variants
    )


def _is_pipeline(tasks: Sequence[TaskSpec]) -> bool:
    """Whether each task starts only after the end of the one before it: they never need resources at the same time."""
    return all(
        any(need.task == before.name and need.kind in AFTER_THE_END for need in task.needs)
        for before, task in itertools.pairwise(tasks)
    )


def _named_cpus(task: TaskSpec) -> float | None:
    """CPUs of one node as the task asks for them: by number, or one for each of its Slurm tasks there."""
    if task.resources.cpus is not None:
        return task.resources.cpus
    tasks = task.ntasks_per_node
    if tasks is None and task.ntasks is not None:
        tasks = -(-task.ntasks // task.num_nodes)
    if tasks is None and task.cpus_per_task is None:
        return None
    return (tasks or 1) * (task.cpus_per_task or 1)


def _default_cpus(tasks: Sequence[TaskSpec], capacity: Capacity) -> int:
    named = [(task.num_nodes, _named_cpus(task)) for task in tasks]
    nodes = sum(count for count, cpus in named if cpus is None)
    if nodes == 0:
        return MILLI
    left = capacity.cpu_milli - sum(count * round(cpus * MILLI) for count, cpus in named if cpus is not None)
    return max(1, min(MILLI, left // nodes))


class WaitingQueue:
    """The waiting jobs, in the order of their ranks."""

    def __init__(self) -> None:
        self._order: list[tuple[Rank, str]] = []
        self._ranks: dict[str, Rank] = {}

    def __len__(self) -> int:
        return len(self._order)

    def __contains__(self, key: str) -> bool:
        return key in self._ranks

    @property
    def head(self) -> str:
        """The first job in the queue; empty when none waits."""
        return self._order[0][1] if self._order else ""

    def add(self, key: str, rank: Rank) -> None:
        """Add a job, or move it to another rank."""
        self.remove(key)
        self._ranks[key] = rank
        insort(self._order, (rank, key))

    def remove(self, key: str) -> bool:
        """Remove a job; False if it does not wait."""
        rank = self._ranks.pop(key, None)
        if rank is None:
            return False
        del self._order[bisect_left(self._order, (rank, key))]
        return True

    def __iter__(self) -> Iterator[str]:
        return (key for _, key in self._order)
