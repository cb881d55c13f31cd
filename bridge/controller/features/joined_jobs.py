"""Jobs that have joined a group: shown under it, and ended with it."""

from __future__ import annotations

import logging

from overspan.bridge.controller.core.recording import RETRY_SECONDS, Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.controller.orders.orders import place
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import Conflict, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

MOST_JOINED = 10_000
"""The most ended jobs of a group's lifetime that are searched."""
BY = "group"
"""Who has cancelled a job that ended with its group."""
DONE = "PrimariesDone"
"""The reason of a member of an elastic task that ended with its group."""


class JoinedJobs:
    """An index of the jobs that have joined each group. It follows from the jobs, so it is not stored."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder
        self._members: dict[int, set[int]] = {}
        self._ended: dict[int, set[int]] = {}
        """Ended jobs that had joined a group, for the groups that were asked for."""

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """A job has changed: it may have joined a group, or be one that ends."""
        job = entry.job
        group = job.spec.parent
        if group is not None:
            members = self._members.setdefault(group, set())
            if job.over:
                members.discard(job.id)
                if group in self._ended:
                    self._ended[group].add(job.id)
            else:
                members.add(job.id)
                if before is None and self._ends(group):
                    self._sweep(group)
            if not members:
                self._members.pop(group, None)
        if job.id in self._members and self._ends(job.id):
            self._sweep(job.id)

    def forget(self, job: Job) -> None:
        """A job that was to join a group is no job any more."""
        if job.spec.parent in self._ended:
            self._ended[job.spec.parent].discard(job.id)

    def members(self, group: int) -> list[int]:
        """The live jobs that have joined a group."""
        return sorted(self._members.get(group, ()))

    async def list_joined(self, entry: JobEntry) -> list[int]:
        """All jobs that have joined a group, ended ones too."""
        group = entry.job.id
        if not (entry.job.spec.group or entry.job.spec.on_checkpoint or group in self._members):
            return []
        if group not in self._ended:
            self._ended[group] = set()
            # A job can join a group only while the group lives; evaluations come after its end, too.
            window = JobQuery(
                users=(entry.user,),
                since=entry.job.submitted_at,
                until=None if entry.job.spec.on_checkpoint else entry.job.ended_at,
                over=True,
                limit=MOST_JOINED,
            )
            stored = await self.recorder.repository.find(window)
            self._ended[group].update(each.job.id for each in stored if each.job.spec.parent == group)
        return sorted({*self.members(group), *self._ended[group]})

    def _ends(self, group: int) -> bool:
        """Whether a group is over or about to be; a forgotten one is over."""
        entry = self.recorder.registry.get(group)
        if group in self.recorder.registry.aside:
            return False
        return entry is None or entry.job.over or entry.job.ending is not None

    def _sweep(self, group: int) -> None:
        members = [member for member in self.members(group) if self._ends_with(member, group)]
        if members:
            self.recorder.spawn(self._end(group, members), f"ending what has joined group {group}")

    async def _end(self, group: int, members: list[int]) -> None:
        """Cancel what has joined a group; again where it cannot be written, since the group may change no more."""
        try:
            await self._cancel(members)
        except OverspanError as error:
            log.warning("what has joined group %d does not end: %s; trying again", group, error)
            at = self.recorder.clock() + RETRY_SECONDS
            self.recorder.timers.set(f"joined:{group}", at, lambda: self._try_again(group))

    def _try_again(self, group: int) -> None:
        # It may have been put back meanwhile.
        if self._ends(group):
            self._sweep(group)

    def _ends_with(self, member: int, group: int) -> bool:
        """Whether a joined job ends with its group. An evaluation outlives it, unless the group was cancelled."""
        entry, parent = self.recorder.registry.get(member), self.recorder.registry.get(group)
        if entry is None or entry.job.spec.evaluation is None:
            return True
        ending = parent.job.ending if parent is not None else None
        return ending is not None and ending.cause is Cause.CANCEL

    def _make_end(self, job: Job, now: float) -> events.Cancel | None:
        """What ends a joined job. A member of an elastic task ends as auxiliary tasks of its group do."""
        cancel = events.Cancel(now, by=BY)
        group = self.recorder.registry.get(job.spec.parent or 0)
        ending = group.job.ending if group is not None else None
        if job.spec.member is None or ending is None or ending.cause is not Cause.PRIMARIES_DONE:
            return cancel
        if job.ending is not None and not job.ending.requeues and not ending.at_once:
            # Its termination delay has begun.
            return None
        if job.granted_at is None:
            return cancel
        return cancel._replace(done=DONE, delayed=not ending.at_once)

    async def _cancel(self, members: list[int]) -> None:
        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            for unit in units:
                event = self._make_end(unit.job, now)
                if event is None:
                    continue
                try:
                    place(unit, event, now)
                except Conflict:
                    # It ends already.
                    continue

        await self.recorder.change(members, work)
