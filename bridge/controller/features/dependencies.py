"""Resolves jobs' dependencies as soon as the jobs they name start or end.

A cluster that can wait for a dependency itself gets the job at once, if it has all the jobs that the dependency names.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import replace

from overspan.adapters.abilities import Dependencies as NativeDependencies
from overspan.adapters.contract import Awaited, Unmet
from overspan.bridge.config.settings import ClusterSettings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.dependency_resolver import DependencyResolver
from overspan.bridge.controller.core.recording import RETRY_SECONDS, Recorder
from overspan.bridge.controller.core.registry import JobEntry, entry_of
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.controller.features.job_limits import make_slot_queue
from overspan.bridge.lifecycle.dependencies import Predecessor, list_unmet, predecessor_of, resolve
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job, Resolution
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed
from overspan.bridge.model.states import State
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

_OPEN = Predecessor(None, None)

_Key = int | tuple[str, str]
"""What a dependency names: a job, or (singleton) all jobs of a user and name."""


class DependencyTracker(DependencyResolver):
    """An index of which jobs wait for which. It follows from the jobs, so it is not stored."""

    def __init__(
        self, recorder: Recorder, clusters: Clusters, limits: Mapping[str, ClusterSettings] | None = None
    ) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self._limits = limits or {}
        self._handles: dict[int, str] = {}
        """The handles of awaited jobs, as their dependents last saw them."""
        self._waiting: dict[_Key, set[int]] = {}
        self._keys: dict[int, set[_Key]] = {}
        recorder.followers.append(self.follow)
        recorder.dependency_resolver = self

    # --- what a cluster waits for itself ------------------------------------------------------------------------------

    def list_unmet(self, entry: JobEntry, job: Job, cluster: str) -> tuple[Unmet, ...]:
        """What the entry's job, by these facts of it, still waits for, with the jobs that the cluster has."""
        return tuple(
            Unmet(need, self._list_awaited(entry, need, cluster) if unknown else ())
            for need, unknown in list_unmet(job, self.recorder.clock())
        )

    def waits_there(self, entry: JobEntry, job: Job, cluster: str) -> bool:
        """Whether a cluster itself can wait for all that is not met.

        Not for elements, which are drawn when they may start; not for jobs with a choice of clusters, whose time on
        one counts; and not where who waits would take a slot from who could run.
        """
        if job.array is not None or job.element is not None or job.spec.choice:
            return False
        adapter = self._find_waiter(cluster)
        needs = self.list_unmet(entry, job, cluster) if adapter is not None else ()
        return adapter is not None and all(unmet.jobs for unmet in needs) and adapter.waits_for(job, needs)

    async def preview(self, entry: JobEntry, dependency: Dependency) -> Job:
        """The entry's job with another dependency, with what is settled of that already. Raises StoreFailed."""
        now = self.recorder.clock()
        resolved = []
        for number, need in enumerate(dependency.needs):
            outcome = resolve(need, await self._find(entry, need), now)
            if outcome is not None:
                resolved.append(Resolution(number, outcome[0]))
        return replace(entry.job, dependency=dependency, resolved=tuple(resolved))

    async def list_unknown(self, dependency: Dependency) -> list[int]:
        """The jobs that a dependency names and that are unknown, or were forgotten. Raises StoreFailed."""
        registry = self.recorder.registry
        unknown = []
        for number in dict.fromkeys(need.job for need in dependency.needs if need.kind is not DependencyKind.SINGLETON):
            job_id = registry.owner(number)
            if (
                number
                and job_id not in registry.aside
                and registry.get(job_id) is None
                and await self._stored(job_id) is None
            ):
                unknown.append(number)
        return unknown

    def _find_waiter(self, name: str) -> NativeDependencies | None:
        """The adapter of a cluster that waits for jobs itself, where any number of them may wait there."""
        cluster, limits = self.clusters.find(name), self._limits.get(name)
        if cluster is None or (limits is not None and make_slot_queue(limits) is not None):
            return None
        try:
            adapter = cluster.adapter
        except OverspanError:
            return None
        return adapter if isinstance(adapter, NativeDependencies) else None

    def _list_awaited(self, entry: JobEntry, need: JobNeed, cluster: str) -> tuple[Awaited, ...]:
        """The jobs that a need is about; none unless the cluster has each of them as a whole."""
        registry = self.recorder.registry
        found: list[JobEntry | None]
        if need.kind is DependencyKind.SINGLETON:
            found = list(self._list_elders(entry))
        elif need.task is not None or registry.owner(need.job) != need.job:
            return ()
        elif need.element is not None:
            found = [registry.elements(need.job).get(need.element)]
        else:
            found = [registry.get(need.job)]
        if not all(one is not None and one.watched and one.cluster == cluster for one in found):
            return ()
        return tuple(Awaited(one.job, one.handle) for one in found if one is not None)

    # --- what is settled ----------------------------------------------------------------------------------------------

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """A job has changed: it may wait for others, and others for it."""
        job = entry.job
        if before is None or before.dependency != job.dependency or (before.over and not job.over):
            self._index(entry)
        moved = self._has_moved(entry)
        if moved or before is None or before.state is not job.state or _starts(before) != _starts(job):
            self._tell(entry)

    def _has_moved(self, entry: JobEntry) -> bool:
        """Whether a job that others wait for has just come to its cluster, or left it."""
        job_id = entry.job.id
        if not entry.watched:
            return self._handles.pop(job_id, "") != ""
        if self._handles.get(job_id) == entry.handle or not any(key in self._waiting for key in _list_keys(entry)):
            return False
        self._handles[job_id] = entry.handle
        return True

    def _index(self, entry: JobEntry) -> None:
        job = entry.job
        self._drop(job.id)
        if not open_needs(job):
            return
        for need in job.dependency.needs:
            singleton = need.kind is DependencyKind.SINGLETON
            key = _name(entry) if singleton else self.recorder.registry.owner(need.job)
            self._waiting.setdefault(key, set()).add(job.id)
            self._keys.setdefault(job.id, set()).add(key)
        found = [self.recorder.registry.get(need.job) for need in job.dependency.needs]
        entry.needed_arrays = frozenset(one.job.id for one in found if one is not None and one.job.array is not None)
        if entry.needed_arrays:
            self.recorder.registry.redraw(entry)
        self._look(job.id)

    def _tell(self, entry: JobEntry) -> None:
        for job_id in {job_id for key in _list_keys(entry) for job_id in self._waiting.get(key, ())} - {entry.job.id}:
            self._look(job_id)

    def _look(self, job_id: int) -> None:
        self.recorder.spawn(self._settle(job_id), f"looking at what job {job_id} waits for")

    async def _settle(self, job_id: int) -> None:
        """Store which needs of a job are settled by now."""
        entry = self.recorder.registry.get(job_id)
        if entry is None or not open_needs(entry.job):
            self._drop(job_id)
            return
        dependency = entry.job.dependency
        now = self.recorder.clock()
        news = []
        for number in open_needs(entry.job):
            outcome = resolve(dependency.needs[number], await self._find(entry, dependency.needs[number]), now)
            if outcome is not None:
                news.append(events.Resolved(now, number, outcome[0]))

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                if unit.job.dependency == dependency:
                    for event in news:
                        unit.advance(event)

        if not news and not self._is_due(entry):
            return
        try:
            await self.recorder.change((job_id,), work)
            self._hurry(job_id)
        except OverspanError as error:
            log.warning("job %d: %s; trying again", job_id, error, extra={"job": job_id})
            at = self.recorder.clock() + RETRY_SECONDS
            self.recorder.timers.set(f"needs:{job_id}", at, lambda: self._look(job_id))

    def _is_due(self, entry: JobEntry) -> bool:
        """Whether the cluster's part in a job's dependency changed: it can wait for the job now, or no longer."""
        if entry.launched:
            return False
        owed = self.recorder.outbox.submit_of(entry.job.id, entry.cluster) is not None
        return owed is not self.waits_there(entry, entry.job, entry.cluster)

    def _hurry(self, job_id: int) -> None:
        """Retry a submission now that was deferred because the state of the job it waits for was unknown."""
        outbox, entry = self.recorder.outbox, self.recorder.registry.get(job_id)
        row = None if entry is None else outbox.submit_of(job_id, entry.cluster)
        if row is not None and row.tries and not outbox.tried(row.token):
            outbox.offer(row.token)
            self.recorder.notifications.owed((row.cluster, row.kind))

    def _drop(self, job_id: int) -> None:
        """Drop a job from the index."""
        for key in self._keys.pop(job_id, ()):
            self._waiting[key].discard(job_id)
            if not self._waiting[key]:
                del self._waiting[key]

    async def _find(self, entry: JobEntry, need: JobNeed) -> Predecessor | None:
        """The state of the job that a need names; None if it is unknown, or was forgotten."""
        registry = self.recorder.registry
        if need.kind is DependencyKind.SINGLETON:
            return _OPEN if any(True for _ in self._list_elders(entry)) else None
        job_id = registry.owner(need.job)
        if job_id in registry.aside:
            # Its state cannot be read, so jobs that depend on it go on waiting.
            return _OPEN
        found = registry.get(job_id) or await self._stored(job_id)
        if found is None:
            return None
        if need.kind is DependencyKind.AFTERCORR and entry.job.array is not None and found.job.array is not None:
            # Each element waits for its own counterpart.
            return None
        task = need.job - job_id if need.task is None and need.job != job_id else need.task
        if need.element is None or found.job.array is None:
            return predecessor_of(found.job, task)
        element = registry.elements(job_id).get(need.element)
        if element is not None:
            return predecessor_of(element.job)
        array = found.job.array
        if any(need.element in part.values() for part in array.waiting):
            return _OPEN
        if any(need.element in part.values() for part in array.cancelled):
            return Predecessor(None, self.recorder.clock())
        return await self._stored_element(job_id, need.element)

    def _list_elders(self, entry: JobEntry) -> Iterator[JobEntry]:
        """Earlier jobs of the same name and user that are not over."""
        name = _name(entry)
        for other in self.recorder.registry:
            if other.job.id < entry.job.id and not other.job.over and _name(other) == name:
                yield other

    async def _stored(self, job_id: int) -> JobEntry | None:
        found = await self.recorder.repository.find(JobQuery(ids=(job_id,)))
        return entry_of(found[0]) if found else None

    async def _stored_element(self, array: int, index: int) -> Predecessor | None:
        for stored in await self.recorder.repository.find(JobQuery(arrays=(array,))):
            if stored.job.element is not None and stored.job.element.index == index:
                return predecessor_of(stored.job)
        return None


def open_needs(job: Job) -> list[int]:
    """The places of a waiting job's needs that are not settled."""
    if job.state is not State.PENDING or job.granted_at is not None or not job.dependency.needs:
        return []
    settled = {entry.place for entry in job.resolved}
    return [place for place in range(len(job.dependency.needs)) if place not in settled]


def _starts(job: Job) -> int:
    """How many starts and ends of tasks there were, for those that wait for a task."""
    return sum(len(task.attempts) + task.over + (task.live and task.state is State.RUNNING) for task in job.tasks)


def _list_keys(entry: JobEntry) -> list[_Key]:
    """The keys by which other jobs may wait for a job."""
    keys: list[_Key] = [entry.job.id, _name(entry)]
    return keys if entry.job.element is None else [*keys, entry.job.element.array]


def _name(entry: JobEntry) -> tuple[str, str]:
    return entry.user, entry.job.labels.get("name", entry.job.spec.name)
