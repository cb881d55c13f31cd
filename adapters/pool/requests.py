"""What a launch asks of one worker, and what a worker has, by the numbers that their files declare. Pure."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import NamedTuple

from overspan.adapters.abilities import WorkerKind
from overspan.adapters.bookings import BookedMember, Booking, Bookings, Capacity, Variant
from overspan.adapters.local.queue.addresses import Addresses
from overspan.adapters.local.queue.booking import AFTER_THE_END, list_choices
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.events import SetTime
from overspan.bridge.model.job import Job, Placement
from overspan.bridge.model.resources import MILLI, NodeNeed
from overspan.bridge.model.sizes import format_memory
from overspan.bridge.model.spec import Form, JobSpec, TaskSpec
from overspan.bridge.runtime.pool.exchanges import GROUPS

UNCOUNTED = 1 << 40
"""MiB of a worker that declares no memory: none is counted there."""
MOST_REQUESTS = 10_000
"""Requests of which it is remembered what fits them."""
_NO_FEATURES: frozenset[str] = frozenset()
_OF_GROUPS = frozenset({GROUPS})
_SCRIPT_NODES = "a batch script in a pool runs on one node"
_ELASTIC = "elastic tasks do not run in a pool: all members of a group are on one worker there"


class WorkerRequest(NamedTuple):
    """What a launch needs of a worker: alternatives, the preferred one first. `whole`: all of the worker.

    `seconds` is how long it may take, its grace period included; None without a limit. `groups` are the alternatives of
    a launch of several members, which one worker has all of; `needs` is empty then.
    """

    needs: tuple[NodeNeed, ...]
    whole: bool = False
    seconds: int | None = None
    groups: tuple[Variant, ...] = ()

    @property
    def alternatives(self) -> int:
        """How many bookings would satisfy it."""
        return len(self.groups) or (1 if self.whole else len(self.needs))

    @property
    def features(self) -> frozenset[str]:
        """What the version of a worker must be able to do."""
        return _OF_GROUPS if self.groups else _NO_FEATURES


class WorkerSize(NamedTuple):
    """What workers of a pool have, and for how many seconds; None without a limit."""

    capacity: Capacity
    seconds: int | None = None


def read_request(job: Job) -> WorkerRequest:
    """What a job asks of a worker.

    A job file of one task that names no resources takes a whole worker, as with SkyPilot; a batch script takes one CPU,
    as with Slurm, and so does each member of a group.
    """
    seconds = find_job_seconds(job)
    if is_group(job.spec):
        return WorkerRequest((), seconds=seconds, groups=list_choices(job))
    task = job.spec.tasks[0]
    resources = task.resources
    cpus = count_cpus(task)
    named = cpus is not None or resources.gpus or resources.gres or resources.memory_mib is not None
    if task.form is Form.RUN and not named and resources.memory_mib_per_cpu is None:
        return WorkerRequest((NodeNeed(MILLI),), True, seconds)
    return WorkerRequest(resources.needs(cpus or 1), seconds=seconds)


def is_group(spec: JobSpec) -> bool:
    """Whether a launch has several members."""
    return len(spec.tasks) > 1 or spec.tasks[0].num_nodes > 1


def find_job_seconds(job: Job) -> int | None:
    """How long a launch may take, its end included; None without a limit."""
    if is_group(job.spec):
        return _find_group_seconds(job)
    task = job.spec.tasks[0]
    return find_seconds(task, job.time_of(task.name))


def change_time(job: Job, event: SetTime) -> Job:
    """The job with the wall time that an order gives one of its tasks, or all."""
    tasks = [replace(task, time=event.time or 0) if event.task in ("", task.name) else task for task in job.tasks]
    return replace(job, tasks=tuple(tasks))


def _find_group_seconds(job: Job) -> int | None:
    """The tasks by whose ends it ends, at once or one after the other, and then the delay of the others."""
    tasks, lasting = job.spec.tasks, job.lasting
    limits = [find_seconds(task, job.time_of(task.name)) for task in lasting]
    known = [limit for limit in limits if limit is not None]
    if len(known) < len(limits):
        return None
    in_turn = any(need.kind in AFTER_THE_END for task in tasks for need in task.needs)
    delays = [task.termination_delay + task.grace_period for task in tasks if task not in lasting]
    return (sum(known) if in_turn else max(known, default=0)) + max(delays, default=0)


def find_seconds(task: TaskSpec, limit: int | None) -> int | None:
    """How long a task with that time limit may take, its end included."""
    return None if limit is None else limit + task.grace_period


def count_cpus(task: TaskSpec) -> float | None:
    """CPUs of one node as the task asks for them: by number, or one for each of its Slurm tasks there."""
    if task.resources.cpus is not None:
        return task.resources.cpus
    tasks = task.ntasks_per_node or task.ntasks
    if tasks is None and task.cpus_per_task is None:
        return None
    return (tasks or 1) * (task.cpus_per_task or 1)


def measure_worker(task: TaskSpec) -> Capacity:
    """What a worker of this task has for its jobs; of alternatives the preferred one."""
    need = task.resources.need(0, count_cpus(task) or 1)
    whole, rest = divmod(need.gpu_milli, MILLI)
    return Capacity(need.cpu_milli, need.memory_mib or UNCOUNTED, (need.gpu_kind,) * (whole + bool(rest)))


def measure_size(task: TaskSpec) -> WorkerSize:
    """What a worker of this task has for its jobs, and for how long."""
    return WorkerSize(measure_worker(task), task.time)


def list_members(request: WorkerRequest, task: str, capacity: Capacity) -> list[tuple[BookedMember, ...]]:
    """The bookings that would satisfy a request on a worker, preferred ones first."""
    if request.groups:
        return list(request.groups)
    if request.whole:
        need = NodeNeed(capacity.cpu_milli, 0, len(capacity.gpus) * MILLI)
        return [(BookedMember(task, 0, need),)]
    return [(BookedMember(task, 0, need),) for need in request.needs]


def restore_booking(request: WorkerRequest, task: str, places: Sequence[Placement], capacity: Capacity) -> Booking:
    """The booking of a lease that an earlier daemon gave: the first alternative that fits the devices it has."""
    devices = {(place.task, place.index): place.gpus for place in places}
    bookings = [
        Booking(members, tuple(devices.get((member.task, member.node), ()) for member in members))
        for members in list_members(request, task, capacity)
    ]
    return next((booking for booking in bookings if _has_devices(booking)), bookings[0])


def _has_devices(booking: Booking) -> bool:
    """Whether each member has as many devices as it needs."""
    pairs = zip(booking.members, booking.gpus, strict=True)
    return all(-(-member.need.gpu_milli // MILLI) == len(gpus) for member, gpus in pairs)


def find_refusal(job: Job, workers: Collection[WorkerSize]) -> str:
    """Why no worker of the pool can ever run the job, with what is wanted and what is there; empty where one can."""
    spec = job.spec
    if spec.changes_size:
        return _ELASTIC
    if any(task.form is Form.BATCH and task.num_nodes > 1 for task in spec.tasks):
        return _SCRIPT_NODES
    request = read_request(job)
    fitting = [each for each in workers if _has_room(each, request)]
    if not workers or any(_lasts(each, request) for each in fitting):
        return ""
    if fitting and request.seconds is not None:
        longest = max(each.seconds or 0 for each in fitting)
        return (
            f"no worker of the pool can have it: it may take {format_elapsed(request.seconds)} with its grace period; "
            f"a worker lives {format_elapsed(longest)}"
        )
    wanted = " or ".join(dict.fromkeys(word_request(request)))
    there = " or ".join(dict.fromkeys(word_capacity(each.capacity) for each in workers))
    return f"no worker of the pool can have it: wanted {wanted}; a worker has {there}"


class WorkerKinds:
    """What workers of a pool can be, and which of these fit what jobs ask for."""

    def __init__(self) -> None:
        self._kinds: tuple[WorkerKind, ...] = ()
        self.sizes: tuple[WorkerSize, ...] = ()
        self._fitting: dict[WorkerRequest, list[WorkerKind]] = {}

    def declare(self, kinds: Sequence[WorkerKind]) -> None:
        """Say which kinds there are."""
        if self._kinds != tuple(kinds):
            self._kinds = tuple(kinds)
            self.sizes = tuple(measure_size(kind.task) for kind in kinds)
            self._fitting.clear()

    def list_sizes(self) -> list[tuple[WorkerKind, WorkerSize]]:
        """The kinds, each with what such a worker has."""
        return list(zip(self._kinds, self.sizes, strict=True))

    def list_fitting(self, job: Job) -> list[WorkerKind]:
        """The kinds of workers that could run a job."""
        request = read_request(job)
        found = self._fitting.get(request)
        if found is None:
            found = [kind for kind, size in self.list_sizes() if not find_misfit(size, request)]
            if len(self._fitting) >= MOST_REQUESTS:
                self._fitting.clear()
            self._fitting[request] = found
        return found


def _has_room(size: WorkerSize, request: WorkerRequest) -> bool:
    return Bookings(size.capacity).fits(list_members(request, "", size.capacity))


def _lasts(size: WorkerSize, request: WorkerRequest) -> bool:
    return size.seconds is None or request.seconds is None or request.seconds <= size.seconds


def find_misfit(size: WorkerSize, request: WorkerRequest) -> str:
    """Why a worker of that size can never run it; empty where it can."""
    if not _has_room(size, request):
        return "too small"
    return "" if _lasts(size, request) else "it would end too soon"


def draw_addresses(root: str, job: int, booking: Booking | None) -> tuple[str, ...]:
    """The loopback address of each member of a pool's job, by which the others reach it on the worker's node.

    Those in use are not recorded: of sixteen millions the same one is hardly drawn for two that live at once.
    """
    drawn, salt = Addresses(), zlib.crc32(root.encode())
    members = booking.members if booking is not None else ()
    return tuple(drawn.draw(job, member.task, member.node, salt) for member in members)


def word_request(request: WorkerRequest) -> list[str]:
    """What each alternative asks for; of a group what its members ask for together."""
    if request.groups:
        return [f"{_word_members(members)} for its {len(members)} members on one worker" for members in request.groups]
    return [_word_need(need) for need in request.needs]


def _word_members(members: Variant) -> str:
    """The sum of what members of the largest phase need."""
    phases = {member.phase for member in members}
    sums = [
        [sum(values) for values in zip(*(_measure(each.need) for each in members if each.phase == phase), strict=True)]
        for phase in phases
    ]
    cpus, memory, gpus = (max(values) for values in zip(*sums, strict=True))
    kinds = " or ".join(sorted({member.need.gpu_kind for member in members if member.need.gpu_kind}))
    return _word(cpus, memory, gpus / MILLI, kinds)


def _measure(need: NodeNeed) -> tuple[int, int, int]:
    return need.cpu_milli, need.memory_mib or 0, need.gpu_milli


def _word_need(need: NodeNeed) -> str:
    return _word(need.cpu_milli, need.memory_mib, need.gpu_milli / MILLI, need.gpu_kind) + "".join(
        f", {entry}" for entry in need.gres
    )


def word_capacity(capacity: Capacity) -> str:
    """What a worker has, as a text."""
    memory = None if capacity.memory_mib >= UNCOUNTED else capacity.memory_mib
    return _word(capacity.cpu_milli, memory, len(capacity.gpus), next(iter(capacity.gpus), ""))


def _word(cpu_milli: int, memory_mib: int | None, gpus: float, kind: str) -> str:
    parts = [f"{cpu_milli / MILLI:g} CPU"]
    parts += [f"{format_memory(memory_mib)} memory"] if memory_mib else []
    parts += [f"{gpus:g} {kind} GPU".replace("  ", " ")] if gpus else []
    return ", ".join(parts)
