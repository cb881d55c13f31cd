"""Settles what jobs wait for outside of themselves, as soon as what they wait for starts or ends."""

from __future__ import annotations

import logging

from overspan.bridge.controller.book import Entry, entry_of
from overspan.bridge.controller.drafts import Draft
from overspan.bridge.controller.recording import RETRY_SECONDS, Recorder
from overspan.bridge.lifecycle.dependencies import Predecessor, predecessor_of, resolve
from overspan.bridge.model import events
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import DependencyKind, JobNeed
from overspan.bridge.model.states import State
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

_OPEN = Predecessor(None, None)

_Key = int | tuple[str, str]
"""What somebody waits for: a job, or all jobs of a user and name."""


class Dependencies:
    """Knows who waits for whom. Nothing of it is stored: it follows from the jobs."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._waiting: dict[_Key, set[int]] = {}
        self._keys: dict[int, set[_Key]] = {}
        recorder.followers.append(self.follow)

    def follow(self, before: Job | None, entry: Entry) -> None:
        """A job has changed: it may wait for others, and others for it."""
        job = entry.job
        if before is None or before.dependency != job.dependency or (before.over and not job.over):
            self._index(entry)
        if before is None or before.state is not job.state or _starts(before) != _starts(job):
            self._tell(entry)

    def _index(self, entry: Entry) -> None:
        job = entry.job
        self._drop(job.id)
        if not open_needs(job):
            return
        for need in job.dependency.needs:
            singleton = need.kind is DependencyKind.SINGLETON
            key = _name(entry) if singleton else self.recorder.book.owner(need.job)
            self._waiting.setdefault(key, set()).add(job.id)
            self._keys.setdefault(job.id, set()).add(key)
        found = [self.recorder.book.get(need.job) for need in job.dependency.needs]
        entry.needed_arrays = frozenset(one.job.id for one in found if one is not None and one.job.array is not None)
        if entry.needed_arrays:
            entry.row = entry.task_rows = None
        self._look(job.id)

    def _tell(self, entry: Entry) -> None:
        job = entry.job
        keys: list[_Key] = [job.id, _name(entry)]
        if job.element is not None:
            keys.append(job.element.array)
        for job_id in {job_id for key in keys for job_id in self._waiting.get(key, ())} - {job.id}:
            self._look(job_id)

    def _look(self, job_id: int) -> None:
        self.recorder.spawn(self._settle(job_id), f"looking at what job {job_id} waits for")

    async def _settle(self, job_id: int) -> None:
        """Write down which needs of a job are settled by now."""
        entry = self.recorder.book.get(job_id)
        if entry is None or not open_needs(entry.job):
            self._drop(job_id)
            return
        dependency = entry.job.dependency
        now = self.recorder.clock()
        news = []
        for place in open_needs(entry.job):
            outcome = resolve(dependency.needs[place], await self._find(entry, dependency.needs[place]), now)
            if outcome is not None:
                news.append(events.Resolved(now, place, outcome[0]))

        def work(drafts: list[Draft]) -> None:
            for draft in drafts:
                if draft.job.dependency == dependency:
                    for event in news:
                        draft.advance(event)

        if not news:
            return
        try:
            await self.recorder.change((job_id,), work)
        except OverspanError as error:
            log.warning("job %d: %s; trying again", job_id, error)
            at = self.recorder.clock() + RETRY_SECONDS
            self.recorder.timers.set(f"needs:{job_id}", at, lambda: self._look(job_id))

    def _drop(self, job_id: int) -> None:
        """It waits for nothing any more."""
        for key in self._keys.pop(job_id, ()):
            self._waiting[key].discard(job_id)
            if not self._waiting[key]:
                del self._waiting[key]

    async def _find(self, entry: Entry, need: JobNeed) -> Predecessor | None:
        """What is waited for as it stands; None when nobody knows it (any more)."""
        book = self.recorder.book
        if need.kind is DependencyKind.SINGLETON:
            return _OPEN if self._has_elder(entry) else None
        job_id = book.owner(need.job)
        found = book.get(job_id) or await self._stored(job_id)
        if found is None:
            return None
        if need.kind is DependencyKind.AFTERCORR and entry.job.array is not None and found.job.array is not None:
            # Each element waits for its own counterpart.
            return None
        task = need.job - job_id if need.task is None and need.job != job_id else need.task
        if need.element is None or found.job.array is None:
            return predecessor_of(found.job, task)
        element = book.elements(job_id).get(need.element)
        if element is not None:
            return predecessor_of(element.job)
        array = found.job.array
        if any(need.element in part.values() for part in array.waiting):
            return _OPEN
        if any(need.element in part.values() for part in array.cancelled):
            return Predecessor(None, self.recorder.clock())
        return await self._stored_element(job_id, need.element)

    def _has_elder(self, entry: Entry) -> bool:
        """Whether an earlier job of the same name and user is not over."""
        name = _name(entry)
        return any(
            other.job.id < entry.job.id and not other.job.over and _name(other) == name for other in self.recorder.book
        )

    async def _stored(self, job_id: int) -> Entry | None:
        found = await self.recorder.ledger.find(JobQuery(ids=(job_id,)))
        return entry_of(found[0]) if found else None

    async def _stored_element(self, array: int, index: int) -> Predecessor | None:
        for stored in await self.recorder.ledger.find(JobQuery(arrays=(array,))):
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


def _name(entry: Entry) -> tuple[str, str]:
    return entry.user, entry.job.labels.get("name", entry.job.spec.name)
