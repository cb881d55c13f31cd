"""What `span plan` prints for a pool: what a job asks of a worker, which workers fit it, what they would run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from overspan.adapters.abilities import WorkerKind
from overspan.adapters.local.planning import render_task
from overspan.adapters.pool.dispatch import PoolQueue, WorkerRoom, assign
from overspan.adapters.pool.launches import PoolLaunch
from overspan.adapters.pool.requests import (
    WorkerRequest,
    WorkerSize,
    find_misfit,
    list_members,
    measure_worker,
    word_capacity,
    word_request,
)
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.job import Job


def render_plan(
    launch: PoolLaunch,
    job: Job,
    kinds: Sequence[tuple[WorkerKind, WorkerSize]],
    workers: Mapping[str, WorkerRoom],
    now: float,
) -> str:
    """The plan of a job, which `launch` would be one of; `workers` are those that take launches now, by their names."""
    request = launch.request
    capacities = [measure_worker(kind.task) for kind, size in kinds if not find_misfit(size, request)]
    # Where nothing fits, as the first worker would have it.
    capacities += [measure_worker(kind.task) for kind, _ in kinds]
    members = list_members(request, launch.task, capacities[0])[0] if capacities else ()
    count = sum(task.num_nodes for task in job.spec.tasks)
    lines = [f"# {job.spec.name}: {count} node{'s' * (count != 1)} on one worker of the pool, booked together"]
    lines += [f"# {line}" for line in _describe(launch, kinds, workers, now)]
    for task in job.spec.tasks:
        lines += ["", *render_task(job, task, [member for member in members if member.task == task.name])]
    return "\n".join(lines) + "\n"


def _describe(
    launch: PoolLaunch,
    kinds: Sequence[tuple[WorkerKind, WorkerSize]],
    workers: Mapping[str, WorkerRoom],
    now: float,
) -> Iterator[str]:
    request = launch.request
    wanted = "a whole worker" if request.whole else " or ".join(dict.fromkeys(word_request(request)))
    limit = "" if request.seconds is None else f", for {format_elapsed(request.seconds)} with its grace period"
    yield f"wanted: {wanted}{limit}"
    for kind, size in kinds:
        name = f"a worker of class {kind.worker_class}" if kind.worker_class else "a worker"
        lives = "" if size.seconds is None else f", for {format_elapsed(size.seconds)}"
        yield f"{name} has {word_capacity(size.capacity)}{lives}: {find_misfit(size, request) or 'it fits'}"
    yield _find_place(launch, request, workers, now)


def _find_place(launch: PoolLaunch, request: WorkerRequest, workers: Mapping[str, WorkerRoom], now: float) -> str:
    """Which worker would have it now, if nothing else waited."""
    if not workers:
        return "now: no worker takes jobs, so it would wait for one"
    able = {name: worker for name, worker in workers.items() if worker.can_run(request, now)}
    alone = PoolQueue()
    alone.add(launch)
    for one in assign(alone, able, now):
        return f"now: {one.worker} has room for it"
    return f"now: it would wait; none of {len(workers)} workers has room for it"
