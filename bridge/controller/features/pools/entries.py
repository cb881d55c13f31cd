"""A pool in memory, and what is said of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from overspan.adapters.abilities import TakesWorkers
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.features.pools.scaling import MOST_FAILURES, PoolView, PoolWorker
from overspan.bridge.model.documents import encode
from overspan.bridge.model.job import Job
from overspan.bridge.model.pools import UNKNOWN_LIFE, WorkerLife, plan_life
from overspan.bridge.model.spec import JobSpec, Origin
from overspan.bridge.model.states import State
from overspan.bridge.readers.pool_file import PoolSpec
from overspan.bridge.store.pool_records import PoolFacts, StoredPool


@dataclass(eq=False, slots=True)
class PoolEntry:
    """A pool in memory; its record is changed under its lock, and only after a commit."""

    stored: StoredPool
    spec: PoolSpec
    cluster: Cluster
    opened_at: float
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    ready: dict[int, str] = field(default_factory=dict)
    """Workers that have been in contact, each with the word of its process."""
    ends: dict[int, float] = field(default_factory=dict)
    """When their clusters will end workers, as they have said; infinity for never."""
    longest: int | None = None
    """How many seconds the last of these had in all."""
    idle_since: dict[int, float] = field(default_factory=dict)
    waiting_since: float | None = None

    @property
    def facts(self) -> PoolFacts:
        """How it is wanted."""
        return self.stored.facts

    @property
    def name(self) -> str:
        """Its name, which is its cluster's too."""
        return self.stored.name

    @property
    def adapter(self) -> TakesWorkers:
        adapter = self.cluster.open()
        assert isinstance(adapter, TakesWorkers)
        return adapter


def compare_workers(spec: JobSpec) -> dict[str, Any]:
    """What of a worker's spec calls for new workers when it changes."""
    plain = replace(spec, origin=Origin(), environment={}, notes=(), later_places={}, mount_places={}, name="")
    document: dict[str, Any] = encode(plain)
    return document


def list_workers(entries: Iterable[JobEntry], pool: str) -> list[JobEntry]:
    """The workers of a pool that are not over, oldest first."""
    found = [each for each in entries if each.job.spec.worker is not None and each.job.spec.worker.pool == pool]
    return sorted((each for each in found if not each.job.over), key=lambda each: each.job.id)


def find_life(job: Job, now: float, end: float | None = None) -> WorkerLife | None:
    """The life of a worker, which its own limit ends or its cluster's (`end`); None without either.

    One whose start is not known yet may have begun just now.
    """
    begun = now if job.granted_at is None else job.granted_at
    ends_at = min(begun + (_find_limit(job) or math.inf), math.inf if end is None else end)
    return None if ends_at == math.inf else plan_life(begun, ends_at - begun)


def find_least_life(job: Job, end: float | None = None) -> WorkerLife | None:
    """The shortest life that a worker may have, by which it is given jobs; None without a limit.

    One whose start is not known yet may have begun when it was submitted. While `end` is not known, its cluster may
    have a limit that is shorter than any.
    """
    if end is None and not _find_limit(job):
        return UNKNOWN_LIFE
    return find_life(job, job.submitted_at, end)


def _find_limit(job: Job) -> int | None:
    return job.time_of(job.tasks[0].name)


def count_waiting(entries: Iterable[JobEntry], pool: str) -> int:
    """How many jobs of a pool wait for a worker, elements of arrays that are no jobs yet included."""
    return sum(_count_waiting(each.job) for each in entries if each.cluster == pool)


def _count_waiting(job: Job) -> int:
    if job.over or job.held or job.granted_at is not None:
        return 0
    if job.array is None:
        return int(job.reason not in ("Dependency", "BeginTime"))
    number = sum(len(part.values()) for part in job.array.waiting)
    return number if job.array.throttle is None else min(number, job.array.throttle)


def view_pool(entry: PoolEntry, workers: Iterable[JobEntry], waiting: int, now: float) -> PoolView:
    """The pool at this moment; notes since when workers are idle and too many jobs wait."""
    contacts = {each["job"]: each for each in entry.adapter.list_workers()}
    found = []
    for each in workers:
        contact, spec = contacts.get(each.job.id), each.job.spec.worker
        jobs = len(contact["jobs"]) if contact is not None else 0
        if contact is not None and not jobs:
            entry.idle_since.setdefault(each.job.id, now)
        else:
            entry.idle_since.pop(each.job.id, None)
        generation = spec.generation if spec is not None else 0
        since = entry.idle_since.get(each.job.id)
        life = find_life(each.job, now, entry.ends.get(each.job.id))
        renew_at = None if life is None else life.renew_at
        found.append(PoolWorker(each.job.id, generation, contact is not None, jobs, since, renew_at))
    facts = entry.facts
    if waiting >= facts.size.threshold:
        entry.waiting_since = now if entry.waiting_since is None else entry.waiting_since
    else:
        entry.waiting_since = None
    return PoolView(
        facts.size, facts.generation, facts.wanted, found, facts.closed, waiting, entry.waiting_since,
        facts.failures, bool(facts.ending),
    )  # fmt: skip


def describe_pool(entry: PoolEntry, workers: list[JobEntry], jobs: list[JobEntry], now: float) -> dict[str, Any]:
    """The pool as the API tells it: its size, its workers, and how many jobs it has."""
    facts = entry.facts
    contacts = {each["job"]: each for each in entry.adapter.list_workers()}
    told = [_describe_worker(entry, each, contacts.get(each.job.id), now) for each in workers]
    return {
        "name": entry.name,
        "user": entry.stored.user,
        "state": _find_state(entry, told),
        "workers": told,
        "min_workers": facts.size.low,
        "max_workers": facts.size.high,
        "wanted": facts.wanted,
        "generation": facts.generation,
        "waiting": count_waiting(jobs, entry.name),
        "running": sum(each.job.live and each.job.array is None for each in jobs),
        "message": facts.message,
        "created_at": facts.created_at,
    }


def _describe_worker(
    entry: PoolEntry, worker: JobEntry, contact: Mapping[str, Any] | None, now: float
) -> dict[str, Any]:
    spec, job = worker.job.spec.worker, worker.job
    life = find_life(job, now, entry.ends.get(job.id))
    generation = spec.generation if spec is not None else 0
    state = "PENDING" if job.granted_at is None else "STARTING"
    if contact is not None:
        state = "SILENT" if contact["silent"] else "READY"
    if job.id in entry.facts.closed or generation != entry.facts.generation:
        state = "DRAINING"
    return {
        "job": job.id,
        "name": name_worker(entry.name, job.id),
        "state": state,
        "cluster": worker.cluster,
        "node": job.placements[0].node if job.placements else "",
        "generation": generation,
        "jobs": list(contact["jobs"]) if contact is not None else [],
        "since": job.started_at or job.submitted_at,
        "ends_at": None if life is None or job.granted_at is None else life.ends_at,
        "reason": _find_reason(entry, job),
    }


def _find_reason(entry: PoolEntry, worker: Job) -> str:
    """Why a worker takes no jobs yet; empty where it does, or starts."""
    if worker.state is State.PENDING:
        return worker.reason
    if worker.id in entry.ready and find_least_life(worker, entry.ends.get(worker.id)) is UNKNOWN_LIFE:
        return "EndUnknown"
    return ""


def _find_state(entry: PoolEntry, workers: list[dict[str, Any]]) -> str:
    facts = entry.facts
    if facts.ending:
        return "DELETING"
    if any(worker["state"] == "READY" for worker in workers):
        return "READY"
    if facts.failures >= MOST_FAILURES:
        return "FAILED"
    return "STARTING" if workers or facts.wanted else "IDLE"


def name_worker(pool: str, job: int) -> str:
    """The name of a worker, as a node of its pool."""
    return f"{pool}-{job}"
