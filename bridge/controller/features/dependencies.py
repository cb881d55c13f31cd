"""Resolves jobs' dependencies as soon as the jobs they name start or end.

A cluster that can wait for a dependency itself gets the job at once, if it has all the jobs that the dependency names.
"""

from __future__ import annotations

import logging

from overspan.bridge.controller.core.dependency_resolver import name_of
from overspan.bridge.controller.core.recording import RETRY_SECONDS, Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.dependencies import resolve
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import DependencyKind
from overspan.bridge.model.states import State

log = logging.getLogger(__name__)

_Key = int | tuple[str, str]
"""What a dependency names: a job, or (singleton) all jobs of a user and name."""


class DependencyTracker:
    """An index of which jobs wait for which. It follows from the jobs, so it is not stored."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._resolver = recorder.dependency_resolver
        self._handles: dict[int, str] = {}
        """The handles of awaited jobs, as their dependents last saw them."""
        self._waiting: dict[_Key, set[int]] = {}
        self._keys: dict[int, set[_Key]] = {}

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
            key = name_of(entry) if singleton else self.recorder.registry.owner(need.job)
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
            outcome = resolve(dependency.needs[number], await self._resolver.find(entry, dependency.needs[number]), now)
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
        return owed is not self._resolver.waits_there(entry, entry.job, entry.cluster)

    def _hurry(self, job_id: int) -> None:
        """Retry a submission now that was deferred because the state of the job it waits for was unknown."""
        outbox, entry = self.recorder.outbox, self.recorder.registry.get(job_id)
        row = None if entry is None else outbox.submit_of(job_id, entry.cluster)
        if row is not None and row.tries and not outbox.tried(row.token):
            outbox.offer(row.token)
            self.recorder.changes.owed.publish((row.cluster, row.kind))

    def _drop(self, job_id: int) -> None:
        """Drop a job from the index."""
        for key in self._keys.pop(job_id, ()):
            self._waiting[key].discard(job_id)
            if not self._waiting[key]:
                del self._waiting[key]


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
    keys: list[_Key] = [entry.job.id, name_of(entry)]
    return keys if entry.job.element is None else [*keys, entry.job.element.array]
