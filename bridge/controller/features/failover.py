"""Failover: moves waiting jobs to the next candidate when their time is over, or at once if their cluster is down.

A launch that the cluster may have is withdrawn first: an order ends it if it still waits, and only the report of that
end lets the job move. At a start gate that only the daemon opens, the decision alone is enough, and the launch is
released. When a job is due is one of its facts, so a restart of the daemon changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.candidates import CandidateRef
from overspan.bridge.lifecycle.failover import failover_time, list_next
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job

log = logging.getLogger(__name__)

AGAIN_SECONDS = 15.0
"""Seconds after which a job is tried again that cannot move now: no candidate answers, or its cluster may have it."""


class Failover:
    """Follows every waiting job that has a choice of clusters."""

    def __init__(self, recorder: Recorder, clusters: Clusters) -> None:
        self._recorder = recorder
        self._clusters = clusters
        self._again: dict[int, float] = {}
        """The earliest time of the next try, for jobs that could not move."""

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """Arm the timer of a job that waits and has a choice of clusters."""
        if not entry.job.cluster:
            return
        at = failover_time(entry.job)
        if at is None:
            self._recorder.timers.drop(_name(entry.job.id))
            self._again.pop(entry.job.id, None)
        else:
            self._arm(entry.job.id, max(at, self._again.get(entry.job.id, at)))

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by so much."""
        self._again = {job_id: at + seconds for job_id, at in self._again.items()}

    def _arm(self, job_id: int, at: float) -> None:
        def fire() -> None:
            self._recorder.spawn(self._fail_over(job_id), f"failing over job {job_id}")

        self._recorder.timers.set(_name(job_id), at, fire)

    async def _fail_over(self, job_id: int) -> None:
        """Move a job whose time on its cluster is over."""
        entry = self._recorder.registry.get(job_id)
        if entry is None or not self._is_due(entry.job) or (entry.launched and not self._gives_back(entry.cluster)):
            return
        target = await self._find_next(entry.job, {})
        moved = False
        # A cluster may refuse the withdrawal; without this the order would be repeated at once.
        self._again[job_id] = self._recorder.clock() + AGAIN_SECONDS
        try:
            if target is not None:
                text = f"not started within {self._recorder.clock() - (entry.job.offered_at or 0.0):.0f} s"
                moved = await self._recorder.change((job_id,), lambda units: self._move_due(units, target, text))
        except OverspanError as error:
            log.warning("job %d: %s; trying again", job_id, error, extra={"job": job_id})
        if not moved:
            self._arm(job_id, self._recorder.clock() + AGAIN_SECONDS)

    def _is_due(self, job: Job) -> bool:
        at = failover_time(job)
        return at is not None and at <= self._recorder.clock()

    def _gives_back(self, name: str) -> bool:
        """Whether a waiting launch can be withdrawn from a cluster for certain."""
        cluster = self._clusters.find(name)
        return cluster is not None and cluster.gives_back

    async def _find_next(self, job: Job, troubles: dict[str, str]) -> CandidateRef | None:
        """The next candidate whose cluster answers; `troubles` caches the answers."""
        for place in list_next(job):
            cluster = self._clusters.find(place.cluster)
            if cluster is None:
                continue
            if place.cluster not in troubles:
                troubles[place.cluster] = await cluster.find_trouble(self._recorder.clock())
            if not troubles[place.cluster]:
                return place
        return None

    def _move_due(self, units: list[UnitOfWork], target: CandidateRef, text: str) -> bool:
        return any(self._is_due(unit.job) and self._move(unit, target, text) for unit in units)

    def _move(self, unit: UnitOfWork, target: CandidateRef, text: str) -> bool:
        """Move a job, or order its withdrawal; False while it is unknown whether its cluster has it."""
        now = self._recorder.clock()
        if not unit.dispatched:
            return unit.advance(events.Move(now, target.cluster, text, candidate=target.candidate))
        if not unit.launched or not self._gives_back(unit.cluster):
            return False
        event = events.Expire(now, Cause.FAILOVER.value, target.cluster, target.candidate)
        if self._clusters.get(unit.cluster).holds_back:
            return unit.advance(event)
        if not unit.asked(event):
            unit.order(now, event)
        return True

    def leave_soon(self, job_ids: Sequence[int]) -> None:
        """Move jobs, in the background, that never reached their cluster, which is down."""
        self._recorder.spawn(self._leave(job_ids), "leaving a cluster that does not answer")

    async def _leave(self, job_ids: Sequence[int]) -> None:
        troubles: dict[str, str] = {}
        for job_id in job_ids:
            entry = self._recorder.registry.get(job_id)
            target = None if entry is None else await self._find_next(entry.job, troubles)
            if entry is None or target is None:
                continue
            cluster = self._clusters.find(entry.cluster)
            text = f"no answer: {cluster.message}" if cluster is not None else "not configured any more"

            def work(units: list[UnitOfWork], target: CandidateRef = target, text: str = text) -> None:
                for unit in units:
                    if not unit.dispatched and target in list_next(unit.job):
                        now = self._recorder.clock()
                        unit.advance(events.Move(now, target.cluster, text, candidate=target.candidate))

            try:
                await self._recorder.change((job_id,), work)
            except OverspanError as error:
                log.warning("job %d: %s", job_id, error, extra={"job": job_id})


def _name(job_id: int) -> str:
    return f"failover:{job_id}"
