"""A pool in memory, and what is said of it."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from overspan.adapters.abilities import TakesWorkers
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.features.pools.scaling import MOST_FAILURES, PoolView, PoolWorker
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.model.job import Job
from overspan.bridge.model.pools import UNKNOWN_LIFE, WorkerClass, WorkerLife, WorkerOf, plan_life
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
    barred: dict[str, float] = field(default_factory=dict)
    """Until when no workers are expected of a class, since its cluster gives none; then it is tried again."""

    @property
    def facts(self) -> PoolFacts:
        """How it is wanted."""
        return self.stored.facts

    def list_barred(self, now: float) -> list[str]:
        """The classes of which no workers are expected; none where there is no other class."""
        return [name for name, until in self.barred.items() if until > now and self.facts.size.classes]

    @property
    def name(self) -> str:
        """Its name, which is its cluster's too."""
        return self.stored.name

    @property
    def adapter(self) -> TakesWorkers:
        return cast(TakesWorkers, self.cluster.open())


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


def _find_limit(worker: Job) -> int | None:
    """The time limit of a worker, which is one task; None without one."""
    return worker.time_of(worker.spec.tasks[0].name)


def count_waiting(entries: Iterable[JobEntry], pool: str) -> int:
    """How many jobs of a pool wait for a worker, elements of arrays that are no jobs yet included."""
    return sum(_count_waiting(each.job) for each in entries if each.cluster == pool)


class WaitingJobs(NamedTuple):
    """How many jobs of a pool wait, by the classes that they fit; and the least time of one of each class, seconds."""

    counts: Mapping[tuple[str, ...], int]
    seconds: Mapping[str, int]


def sort_waiting(entry: PoolEntry, entries: Iterable[JobEntry]) -> WaitingJobs:
    """The jobs of a pool that wait, by what they ask for: most of many share it, as the jobs of one text do."""
    alike: dict[Any, tuple[Job, list[int]]] = {}
    for each in entries:
        count = _count_waiting(each.job) if each.cluster == entry.name else 0
        if count:
            alike.setdefault(_find_kind(each.job), (each.job, []))[1].append(count)
    counts: dict[tuple[str, ...], int] = {}
    seconds: dict[str, int] = {}
    for job, numbers in alike.values():
        launch = carry(job)
        fitting = _list_classes(entry, launch)
        counts[fitting] = counts.get(fitting, 0) + sum(numbers)
        least = entry.adapter.find_seconds(launch) or 0
        seconds |= {name: min(least, seconds.get(name, least)) for name in fitting}
    return WaitingJobs(counts, seconds)


def _find_kind(job: Job) -> tuple[int, tuple[int | None, ...], tuple[str, ...]]:
    """What jobs that ask a worker for the same have in common: the spec, the limits that orders gave, the stage."""
    return id(job.spec), tuple([task.time for task in job.tasks]), () if job.stage is None else job.stage.tasks


def _list_classes(entry: PoolEntry, job: Job) -> tuple[str, ...]:
    if not entry.facts.size.classes:
        return ("",)
    return tuple(dict.fromkeys(kind.worker_class for kind in entry.adapter.list_fitting(job)))


def _count_waiting(job: Job) -> int:
    if job.over or job.held or job.granted_at is not None:
        return 0
    if job.array is None:
        return int(job.reason not in ("Dependency", "BeginTime"))
    number = sum(len(part.values()) for part in job.array.waiting)
    return number if job.array.throttle is None else min(number, job.array.throttle)


def view_pool(entry: PoolEntry, workers: Iterable[JobEntry], waiting: WaitingJobs, now: float) -> PoolView:
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
        if spec is None:
            continue
        since = entry.idle_since.get(each.job.id)
        life = find_life(each.job, now, entry.ends.get(each.job.id))
        renew_at = None if life is None else life.renew_at
        too_short = life is not None and _is_too_short(life, each.job, waiting, now)
        if since is not None and (too_short or (contact is not None and contact["lacks"])):
            renew_at = now
        found.append(
            PoolWorker(
                each.job.id, spec.generation, contact is not None, jobs, since, renew_at, spec.worker_class
            )
        )  # fmt: skip
    facts = entry.facts
    if sum(waiting.counts.values()) >= facts.size.threshold:
        entry.waiting_since = now if entry.waiting_since is None else entry.waiting_since
    else:
        entry.waiting_since = None
    return PoolView(
        facts.size, facts.classes, found, facts.closed, waiting.counts, entry.waiting_since, bool(facts.ending),
        entry.list_barred(now), [name for name, until in entry.barred.items() if until <= now],
    )  # fmt: skip


def _is_too_short(life: WorkerLife, worker: Job, waiting: WaitingJobs, now: float) -> bool:
    """Whether a worker has not the time for any job that waits, and another one in its place has."""
    spec = worker.spec.worker
    least = 0 if spec is None else waiting.seconds.get(spec.worker_class, 0)
    # A new one needs the last part of its time for its start.
    young = life.renew_at - (worker.granted_at or now)
    return life.ends_at < now + least and least <= young


def is_current(facts: PoolFacts, worker: WorkerOf) -> bool:
    """Whether a worker is as its class is in the pool's file now."""
    own = facts.classes.get(worker.worker_class)
    return own is not None and worker.generation >= own.since


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
        "classes": [_describe_class(entry, each, told, now) for each in facts.size.classes],
        "generation": facts.generation,
        "waiting": count_waiting(jobs, entry.name),
        "running": sum(each.job.live and each.job.array is None for each in jobs),
        "message": facts.message,
        "created_at": facts.created_at,
    }


def _describe_class(
    entry: PoolEntry, worker_class: WorkerClass, workers: list[dict[str, Any]], now: float
) -> dict[str, Any]:
    own = [worker for worker in workers if worker["class"] == worker_class.name]
    facts = entry.facts.of(worker_class.name)
    return {
        "name": worker_class.name,
        "min_workers": worker_class.low,
        "max_workers": worker_class.high,
        "weight": worker_class.weight,
        "wanted": facts.wanted,
        "workers": len(own),
        "ready": sum(worker["state"] == "READY" for worker in own),
        "barred": worker_class.name in entry.list_barred(now),
        "message": facts.message,
    }


def _describe_worker(
    entry: PoolEntry, worker: JobEntry, contact: Mapping[str, Any] | None, now: float
) -> dict[str, Any]:
    spec, job = worker.job.spec.worker, worker.job
    life = find_life(job, now, entry.ends.get(job.id))
    assert spec is not None
    state = "PENDING" if job.granted_at is None else "STARTING"
    if contact is not None:
        state = "SILENT" if contact["silent"] else "READY"
    if job.id in entry.facts.closed or not is_current(entry.facts, spec):
        state = "DRAINING"
    return {
        "job": job.id,
        "name": name_worker(entry.name, job.id),
        "state": state,
        "cluster": worker.cluster,
        "node": job.placements[0].node if job.placements else "",
        "generation": spec.generation,
        "class": spec.worker_class,
        "jobs": list(contact["jobs"]) if contact is not None else [],
        "since": job.started_at or job.submitted_at,
        "ends_at": None if life is None or job.granted_at is None else life.ends_at,
        "reason": _find_reason(entry, job, contact),
    }


def _find_reason(entry: PoolEntry, worker: Job, contact: Mapping[str, Any] | None) -> str:
    """Why a worker takes no jobs yet, or not all that wait; empty where it does, or starts."""
    if worker.state is State.PENDING:
        return worker.reason
    if worker.id in entry.ready and find_least_life(worker, entry.ends.get(worker.id)) is UNKNOWN_LIFE:
        return "EndUnknown"
    if contact is not None and contact["lacks"]:
        return "WorkerVersion"
    return ""


def _find_state(entry: PoolEntry, workers: list[dict[str, Any]]) -> str:
    facts = entry.facts
    if facts.ending:
        return "DELETING"
    if any(worker["state"] == "READY" for worker in workers):
        return "READY"
    if all(each.failures >= MOST_FAILURES for each in facts.classes.values()):
        return "FAILED"
    return "STARTING" if workers or facts.wanted else "IDLE"


def name_worker(pool: str, job: int) -> str:
    """The name of a worker, as a node of its pool."""
    return f"{pool}-{job}"
