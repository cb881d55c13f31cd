"""How many workers a pool has, which are closed and which are ended. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from overspan.bridge.model.pools import PoolSize

MOST_FAILURES = 3
"""Workers in a row that ended before they were ready; then no more are tried."""


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

    def is_old(self, now: float) -> bool:
        """Whether another one is to take its place."""
        return self.renew_at is not None and now >= self.renew_at


class PoolView(NamedTuple):
    """A pool at one moment. `waiting` jobs have been too many since `waiting_since`."""

    size: PoolSize
    generation: int
    wanted: int
    workers: Sequence[PoolWorker]
    closed: Collection[int] = ()
    waiting: int = 0
    waiting_since: float | None = None
    failures: int = 0
    ending: bool = False


class PoolPlan(NamedTuple):
    """What is to be: how many workers, how many new ones, which are closed, which end, and when to look again."""

    wanted: int
    start: int
    closed: tuple[int, ...]
    end: tuple[int, ...]
    wake_at: float | None = None


def plan_workers(view: PoolView, now: float) -> PoolPlan:
    """What a pool needs now. A closed worker ends when it holds no job.

    An old worker counts no more, and is closed when as many others are ready as are wanted.
    """
    able = [worker for worker in view.workers if worker.job not in view.closed and worker.generation == view.generation]
    serving = [worker for worker in able if not worker.is_old(now)]
    idle, idle_at = _list_idle(view, serving, now)
    moments = [idle_at, *(worker.renew_at for worker in serving)]
    wanted = 0 if view.ending else _choose_number(view, serving, idle, now)
    if view.waiting_since is not None and view.size.up_delay and wanted < view.size.high:
        moments.append(view.waiting_since + view.size.up_delay)
    surplus = sorted(serving, key=lambda worker: (worker.jobs > 0, worker.ready, worker not in idle, -worker.job))
    dropped = surplus[: max(0, len(serving) - wanted)]
    kept = {worker.job for worker in serving} - {worker.job for worker in dropped}
    if sum(worker.ready for worker in serving if worker.job in kept) < wanted:
        kept |= {worker.job for worker in able if worker.is_old(now)}
    # A moment that is over says nothing of those to come.
    wake_at = min((at for at in moments if at is not None and at > now), default=None)
    closed = tuple(worker.job for worker in view.workers if worker.job not in kept)
    end = tuple(worker.job for worker in view.workers if worker.job not in kept and not worker.jobs)
    start = max(0, wanted - len(serving)) if view.failures < MOST_FAILURES else 0
    return PoolPlan(wanted, start, closed, end, wake_at)


def _choose_number(view: PoolView, serving: Sequence[PoolWorker], idle: Sequence[PoolWorker], now: float) -> int:
    size = view.size
    wanted = min(max(view.wanted, size.low), size.high)
    if size.low == size.high:
        return wanted
    busy = sum(worker.jobs > 0 for worker in serving)
    due = view.waiting_since is not None and now - view.waiting_since >= size.up_delay
    if view.waiting and (due or (not serving and not wanted)):
        # All that is missing at once: each step would cost the start of a worker.
        return min(size.high, max(wanted, busy + view.waiting))
    if view.waiting or not idle:
        return wanted
    # Where one idles, those that are missing or on their way are not needed either.
    needed = sum(worker.ready and worker not in idle for worker in serving)
    return max(size.low, min(wanted, needed))


def _list_idle(view: PoolView, serving: Sequence[PoolWorker], now: float) -> tuple[list[PoolWorker], float | None]:
    """The workers that were idle for too long, and when the next one will have been."""
    if view.size.low == view.size.high:
        return [], None
    since = [(worker.idle_since, worker) for worker in serving if worker.idle_since is not None]
    over = [worker for at, worker in since if now - at >= view.size.idle]
    coming = [at + view.size.idle for at, worker in since if worker not in over]
    return over, min(coming, default=None)
