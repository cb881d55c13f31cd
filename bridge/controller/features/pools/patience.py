"""For which classes of workers a pool waits no longer: another class serves the queue in their place meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.features.pools.entries import PoolEntry, is_current
from overspan.bridge.model.job import Job
from overspan.bridge.model.pools import WorkerOf

PATIENCE = 60.0
"""Seconds that a worker may wait for its cluster before others do its work, where its file names no time."""
BARRED_SECONDS = 300.0
"""How long no workers are expected of a class whose cluster has given none."""


def bar_classes(
    entry: PoolEntry, workers: Iterable[JobEntry], find_cluster: Callable[[str], Cluster | None], now: float
) -> None:
    """Note the classes whose workers wait for too long, or for a cluster that does not answer."""
    if not entry.facts.size.classes:
        return
    for each in workers:
        own = each.job.spec.worker
        if own is None or each.job.granted_at is not None or not _is_open(entry, each.job, own):
            continue
        cluster = find_cluster(each.cluster)
        away = cluster is not None and cluster.stale_since is not None
        if away or now >= _find_late(each.job):
            entry.barred[own.worker_class] = now + BARRED_SECONDS


def find_patience_end(entry: PoolEntry, workers: Iterable[JobEntry], now: float) -> float | None:
    """When the next worker will have waited for too long, or a class is tried again; None for never."""
    if not entry.facts.size.classes:
        return None
    moments = [_find_late(each.job) for each in workers if each.job.granted_at is None]
    return min((at for at in (*moments, *entry.barred.values()) if at > now), default=None)


def _is_open(entry: PoolEntry, worker: Job, own: WorkerOf) -> bool:
    """Whether a worker is one of its class as the pool's file says now, and is to stay."""
    return is_current(entry.facts, own) and worker.id not in entry.facts.closed and worker.ending is None


def _find_late(worker: Job) -> float:
    """Until when a worker may wait for its cluster."""
    seconds = worker.spec.failover_after
    return worker.submitted_at + (PATIENCE if seconds is None else seconds)
