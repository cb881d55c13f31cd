"""The pools of the simulated lab: a warm one whose queue comes and goes, and one that sleeps until its first job."""

from __future__ import annotations

from typing import Any, NamedTuple

from overspan.bridge.model.errors import NotFound

_WAVE = 420.0
"""Seconds from one crowd of short jobs to the next."""
_CROWD = 90
_FIRST_JOB = 90_000
_SHORT = 20.0
"""Seconds that a short job takes."""
HOUR = 3600.0


class DemoWorker(NamedTuple):
    """A worker: its job, where that runs, and how many jobs it has at once."""

    job: int
    cluster: str
    node: str
    slots: int


class DemoPools:
    """All pools. What they have to do is told by the clock, so that they are the same for all threads."""

    def __init__(self, begun_at: float) -> None:
        self._begun_at = begun_at
        self._workers = [DemoWorker(41, "leo", "leo-g01", 4), DemoWorker(42, "leo", "leo-g03", 4)]
        self._workers.append(DemoWorker(44, "orbit", "orbit-2", 2))
        self._draining: set[int] = set()

    def describe(self, now: float, name: str = "") -> list[dict[str, Any]]:
        """The pools, or the one of that name. Raises NotFound."""
        pools = [self._describe_embed(now), self._describe_idle(now)]
        if name and name not in [pool["name"] for pool in pools]:
            raise NotFound(f"there is no pool {name!r}", remedy="the pools: embed, render")
        return [pool for pool in pools if name in ("", pool["name"])]

    def drain(self, name: str, workers: tuple[int, ...]) -> None:
        """Give these workers, or all, no more jobs."""
        if name == "embed":
            self._draining |= set(workers) or {worker.job for worker in self._workers}

    def _describe_embed(self, now: float) -> dict[str, Any]:
        waiting = max(0, round(_CROWD * (1 - now % _WAVE / _WAVE * 1.6)))
        serving = [worker for worker in self._workers if worker.job not in self._draining]
        first, jobs = _FIRST_JOB + int((now - self._begun_at) / _SHORT) * 10, {}
        for worker in serving:
            count = worker.slots if waiting else worker.slots // 2
            jobs[worker.job] = list(range(first, first + count))
            first += count
        workers = [self._describe_worker(worker, jobs.get(worker.job, []), now) for worker in self._workers]
        sizes = {"workers": workers, "min_workers": 1, "max_workers": 6, "wanted": len(serving)}
        return _describe_pool("embed", "READY", now, sizes, waiting, sum(map(len, jobs.values())))

    def _describe_worker(self, worker: DemoWorker, jobs: list[int], now: float) -> dict[str, Any]:
        return {
            "job": worker.job,
            "name": f"embed-{worker.job}",
            "state": "DRAINING" if worker.job in self._draining else "READY",
            "cluster": worker.cluster,
            "node": worker.node,
            "generation": 1,
            "class": "",
            "jobs": jobs,
            "since": self._begun_at - 3 * HOUR,
            "ends_at": now - now % HOUR + 9 * HOUR if worker.cluster == "leo" else None,
            "reason": "",
            "way": "port",
        }

    def _describe_idle(self, now: float) -> dict[str, Any]:
        sizes = {"workers": [], "min_workers": 0, "max_workers": 4, "wanted": 0}
        return _describe_pool("render", "IDLE", now, sizes, 0, 0)


def _describe_pool(
    name: str, state: str, now: float, sizes: dict[str, Any], waiting: int, running: int
) -> dict[str, Any]:
    counts = {"generation": 1, "waiting": waiting, "running": running, "message": "", "created_at": now - 30 * HOUR}
    return {"name": name, "user": "ana", "state": state, "classes": [], **sizes, **counts}
