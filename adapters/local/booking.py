"""Resource accounting of this machine, and the queue of waiting jobs. Pure.

A launch is booked as a whole or not at all. Where its tasks run one after the other (a pipeline that starts together;
those of others are launches of their own) it is booked for the largest. The queue is strict, in the order of `Rank`: no
job overtakes one ahead of it, so small jobs never starve a large one. A task that shares another's node still books its
own CPUs, because all nodes are this one machine.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from overspan.adapters.gpu_defaults import bound_gpu_defaults, list_scaled
from overspan.adapters.local.capacity import Capacity
from overspan.bridge.model.job import Job
from overspan.bridge.model.ranks import Rank
from overspan.bridge.model.resources import MILLI, NodeNeed
from overspan.bridge.model.spec import NeedKind, TaskSpec

_MOST_VARIANTS = 64
_AFTER_THE_END = (NeedKind.OK, NeedKind.NOT_OK, NeedKind.ENDED)


class BookedMember(NamedTuple):
    """One node of a task and what it needs. Members of different phases never run at the same time."""

    task: str
    node: int
    need: NodeNeed
    phase: int = 0


class Booking(NamedTuple):
    """What a job holds: its members, and the GPU indices of each."""

    members: tuple[BookedMember, ...]
    gpus: tuple[tuple[int, ...], ...]


class _Machine(NamedTuple):
    """The machine as a node."""

    cpus: float
    memory: int
    gpus: int
    gpu_kind: str = ""


Variant = tuple[BookedMember, ...]


def list_variants(job: Job, capacity: Capacity) -> tuple[Variant, ...]:
    """The variants in which the job can be booked, one for each choice of accelerators, preferred ones first.

    A node that names no CPUs books one, or those that belong to its GPUs. Since that is only a default, such nodes
    together never ask for more than the rest of the machine.
    """
    fitted = fit_gpu_defaults(job, capacity)
    variants = _list_variants(fitted, capacity, MILLI)
    if Bookings(capacity).fits(variants):
        return variants
    return _list_variants(fitted, capacity, _default_cpus(fitted.spec.tasks, capacity))


def fit_gpu_defaults(job: Job, capacity: Capacity) -> Job:
    """The job with its GPUs' default CPUs and memory scaled down so far that all of it fits on this machine."""
    if not any(task.resources.gpu_defaults and task.resources.gpus for task in job.spec.tasks):
        return job
    for one in list_scaled(bound_gpu_defaults(job, [_as_node(capacity)])):
        if Bookings(capacity).fits(_list_variants(one, capacity, MILLI)):
            break
    return one


def _as_node(capacity: Capacity) -> _Machine:
    return _Machine(capacity.cpu_milli / MILLI, capacity.memory_mib, len(capacity.gpus))


def _list_variants(job: Job, capacity: Capacity, default: int) -> tuple[Variant, ...]:
    choices = [task.resources.needs(_named_cpus(task) or default / MILLI) for task in job.spec.tasks]
    variants = itertools.islice(itertools.product(*choices), _MOST_VARIANTS)
    phases = range(len(choices)) if _is_pipeline(job.spec.tasks) else [0] * len(choices)
    return tuple(
        tuple(
            BookedMember(task.name, index, need, phase)
            for task, need, phase in zip(job.spec.tasks, needs, phases, strict=True)
            for index in range(task.num_nodes)
        )
        for needs in variants
    )


def _is_pipeline(tasks: Sequence[TaskSpec]) -> bool:
    """Whether each task starts only after the end of the one before it: they never need resources at the same time."""
    return all(
        any(need.task == before.name and need.kind in _AFTER_THE_END for need in task.needs)
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


class Bookings:
    """Booked resources: thousandths of CPUs and of each GPU, MiB of memory. Nothing is ever booked twice."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.cpu_milli = 0
        self.memory_mib = 0
        self._free_gpu_milli = [MILLI] * len(capacity.gpus)
        self._bookings: dict[str, Booking] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._bookings

    def __len__(self) -> int:
        return len(self._bookings)

    def copy(self) -> Bookings:
        """A copy to try bookings in."""
        twin = Bookings(self.capacity)
        twin.cpu_milli, twin.memory_mib = self.cpu_milli, self.memory_mib
        twin._free_gpu_milli, twin._bookings = list(self._free_gpu_milli), dict(self._bookings)
        return twin

    def fits(self, variants: Iterable[Variant]) -> bool:
        """Whether any variant could be booked now."""
        return any(self._fit(members) is not None for members in variants)

    def keys(self) -> list[str]:
        """The keys of all bookings."""
        return list(self._bookings)

    @property
    def gpu_milli(self) -> int:
        """Thousandths of GPUs that are booked."""
        return sum(MILLI - left for left in self._free_gpu_milli)

    def book(self, key: str, variants: Iterable[Variant]) -> Booking | None:
        """Book the first variant that fits beside what is booked; returns what it holds, None if none fits now.

        `key` names the launch for `release`. Raises ValueError for one with a booking.
        """
        if key in self._bookings:
            raise ValueError(f"{key} is booked already")
        for members in variants:
            gpus = self._fit(members)
            if gpus is not None:
                booking = Booking(members, gpus)
                self.restore(key, booking)
                return booking
        return None

    def restore(self, key: str, booking: Booking) -> None:
        """Enter a job's known booking, even if it exceeds the free resources."""
        self._bookings[key] = booking
        self._add(booking, 1)

    def release(self, key: str) -> bool:
        """Release the job's booking; False if it has none."""
        booking = self._bookings.pop(key, None)
        if booking is None:
            return False
        self._add(booking, -1)
        return True

    def _add(self, booking: Booking, sign: int) -> None:
        cpus, memory = self._sum(booking.members)
        self.cpu_milli += sign * cpus
        self.memory_mib += sign * memory
        # Shares by device and phase: a job books the largest share of any of its phases.
        shares: Counter[tuple[int, int]] = Counter()
        for member, indices in zip(booking.members, booking.gpus, strict=True):
            for index, share in zip(indices, _split(member.need.gpu_milli), strict=False):
                shares[index, member.phase] += share
        for index in {index for index, _ in shares if index < len(self._free_gpu_milli)}:
            self._free_gpu_milli[index] -= sign * max(share for (device, _), share in shares.items() if device == index)

    def _sum(self, members: Variant) -> tuple[int, int]:
        """CPUs and memory of the phase that needs most of each."""
        cpus: Counter[int] = Counter()
        memory: Counter[int] = Counter()
        for member in members:
            cpus[member.phase] += member.need.cpu_milli
            memory[member.phase] += self._memory(member.need)
        return max(cpus.values(), default=0), max(memory.values(), default=0)

    def _memory(self, need: NodeNeed) -> int:
        # As for Slurm's --mem, 0 is all of the node; a job without a memory request books none.
        return self.capacity.memory_mib if need.memory_mib == 0 else need.memory_mib or 0

    def _fit(self, members: Variant) -> tuple[tuple[int, ...], ...] | None:
        cpus, memory = self._sum(members)
        if self.cpu_milli + cpus > self.capacity.cpu_milli or self.memory_mib + memory > self.capacity.memory_mib:
            return None
        if any(member.need.gres for member in members):
            return None
        return self._fit_gpus(members)

    def _fit_gpus(self, members: Variant) -> tuple[tuple[int, ...], ...] | None:
        """Choose devices by best fit: named kinds first, then large shares, each on the fullest device with room."""
        phases = {member.phase: list(self._free_gpu_milli) for member in members}
        chosen: list[list[int]] = [[] for _ in members]
        asked = [
            (not member.need.gpu_kind, -share, place)
            for place, member in enumerate(members)
            for share in _split(member.need.gpu_milli)
        ]
        for _, negative, place in sorted(asked):
            kind = members[place].need.gpu_kind.lower()
            free = phases[members[place].phase]
            fitting = [
                (left, index)
                for index, left in enumerate(free)
                if left >= -negative and (not kind or is_kind(kind, self.capacity.gpus[index]))
            ]
            if not fitting:
                return None
            _, index = min(fitting)
            free[index] += negative
            chosen[place].append(index)
        # Large shares were placed first, so a fraction of a device is last, in the order of `_split`.
        return tuple(tuple(indices) for indices in chosen)


def is_kind(asked: str, device: str) -> bool:
    """Whether a device is of that kind: equal names, or the kind is its first words (`A100` for `A100-SXM4-80GB`)."""
    asked, device = asked.lower(), device.lower()
    return device == asked or device.startswith(f"{asked}-")


def _split(gpu_milli: int) -> list[int]:
    """Whole devices, then the share of one more: 2500 is 1000, 1000, 500."""
    whole, rest = divmod(gpu_milli, MILLI)
    return [MILLI] * whole + ([rest] if rest else [])


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
