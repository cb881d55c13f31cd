"""How many workers a pool has, which are closed and which are ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from overspan.bridge.controller.features.pools.numbers import ClassCounts, choose_numbers
from overspan.bridge.model.pools import PoolSize
from overspan.bridge.store.pool_records import ClassFacts

MOST_FAILURES = 3
"""Workers in a row of a class that ended before they were ready; then no more are tried."""


class PoolWorker(NamedTuple):
    """A worker that is not over. `idle_since` is set for one that is ready and holds no job.

    `renew_at` is when another one is to take its place, because its time limit comes near.
    """

    job: int
    generation: int
    ready: bool = False
    jobs: int = 0
    idle_since: float | None = None
    renew_at: float | None = None
    worker_class: str = ""

    def is_old(self, now: float) -> bool:
        """Whether another one is to take its place."""
        return self.renew_at is not None and now >= self.renew_at


class PoolView(NamedTuple):
    """A pool at one moment. Its `waiting` jobs, by the classes that they fit, are too many since `waiting_since`.

    `barred` are the classes that give no workers now, as far as that is known; those that are tried `again` were.
    """

    size: PoolSize
    classes: Mapping[str, ClassFacts]
    workers: Sequence[PoolWorker]
    closed: Collection[int] = ()
    waiting: Mapping[tuple[str, ...], int] = {}
    waiting_since: float | None = None
    ending: bool = False
    barred: Collection[str] = ()
    again: Collection[str] = ()


class PoolPlan(NamedTuple):
    """What is to be: how many workers of each class, how many new ones, which are closed, and which end.

    `wake_at` is when to look again.
    """

    wanted: Mapping[str, int]
    start: Mapping[str, int]
    closed: tuple[int, ...]
    end: tuple[int, ...]
    wake_at: float | None = None


def plan_workers(view: PoolView, now: float) -> PoolPlan:
    """What a pool needs now. A closed worker ends when it holds no job.

    An old worker counts no more, and is closed when as many others of its class are ready as are wanted.
    """
    able = [worker for worker in view.workers if _is_able(worker, view)]
    serving = [worker for worker in able if not worker.is_old(now)]
    idle, idle_at = _list_idle(view, serving, now)
    wanted = dict.fromkeys(view.classes, 0) if view.ending else _choose_numbers(view, serving, idle, now)
    moments = [idle_at, *(worker.renew_at for worker in serving)]
    if view.waiting_since is not None and view.size.up_delay and sum(wanted.values()) < view.size.high:
        moments.append(view.waiting_since + view.size.up_delay)
    kept: set[int] = set()
    start: dict[str, int] = {}
    for name, number in wanted.items():
        own = [worker for worker in serving if worker.worker_class == name]
        surplus = sorted(own, key=lambda worker: (worker.jobs > 0, worker.ready, worker not in idle, -worker.job))
        staying = surplus[max(0, len(own) - number) :]
        kept |= {worker.job for worker in staying}
        if sum(worker.ready for worker in staying) < number:
            kept |= {worker.job for worker in able if worker.worker_class == name and worker.is_old(now)}
        if len(own) < number and view.classes[name].failures < MOST_FAILURES:
            start[name] = number - len(own)
    # A moment that is over says nothing of those to come.
    wake_at = min((at for at in moments if at is not None and at > now), default=None)
    closed = tuple(worker.job for worker in view.workers if worker.job not in kept)
    end = tuple(worker.job for worker in view.workers if worker.job not in kept and not worker.jobs)
    return PoolPlan(wanted, start, closed, end, wake_at)


def _is_able(worker: PoolWorker, view: PoolView) -> bool:
    """Whether a worker is as the pool's file says now, and open."""
    own = view.classes.get(worker.worker_class)
    return own is not None and worker.generation >= own.since and worker.job not in view.closed


def _choose_numbers(
    view: PoolView, serving: Sequence[PoolWorker], idle: Sequence[PoolWorker], now: float
) -> dict[str, int]:
    barred = {name for name, own in view.classes.items() if name in view.barred or own.failures >= MOST_FAILURES}
    counts = {}
    for each in view.size.every_class:
        own = [worker for worker in serving if worker.worker_class == each.name]
        failed = view.classes[each.name].failures >= MOST_FAILURES
        counts[each.name] = ClassCounts(
            # None is tried, so none is wanted beside those that there are.
            each._replace(high=max(each.low, len(own))) if failed else each,
            view.classes[each.name].wanted,
            len(own),
            busy=sum(worker.jobs > 0 for worker in own),
            ready=sum(worker.ready for worker in own),
            idle=sum(worker in idle for worker in own),
            barred=each.name in barred,
            again=each.name in view.again,
        )
    due = view.waiting_since is not None and now - view.waiting_since >= view.size.up_delay
    return choose_numbers(view.size, counts, view.waiting, due=due)


def _list_idle(view: PoolView, serving: Sequence[PoolWorker], now: float) -> tuple[list[PoolWorker], float | None]:
    """The workers that were idle for too long, and when the next one will have been."""
    if view.size.fixed:
        return [], None
    since = [(worker.idle_since, worker) for worker in serving if worker.idle_since is not None]
    over = [worker for at, worker in since if now - at >= view.size.idle]
    coming = [at + view.size.idle for at, worker in since if worker not in over]
    return over, min(coming, default=None)
