"""Makes jobs of an array's elements, a few ahead of those that run, and closes the array after the last of them."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field

from overspan.adapters.abilities import Throttle
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.recording import RETRY_SECONDS, Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.arrays import AHEAD, Tally, choose_drawn, find_end, find_reason
from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State
from overspan.bridge.store.records import JobQuery

log = logging.getLogger(__name__)

STUCK = "DependencyNeverSatisfied"
UNTOLD = "untold"
START_SECONDS = 5.0
"""Seconds for which the start waits for clusters that enforce throttles."""


@dataclass(slots=True)
class _Count:
    """Running counts of an array's elements, as in `Tally`."""

    live: int = 0
    running: int = 0
    stuck: int = 0
    states: set[State] = field(default_factory=set)
    exit_code: int = 0
    signal: int = 0
    told: int | str | None = UNTOLD
    """The throttle that the cluster has."""
    filling: bool = False
    again: bool = False
    failures: int = 0
    """Passes that have failed one after the other."""

    def add(self, job: Job, by: int) -> None:
        """Add (`by` = 1) or remove (-1) an element with these facts."""
        if job.over:
            if by > 0:
                self.states.add(job.state)
                self.exit_code = max(self.exit_code, job.exit_code)
                self.signal = self.signal or job.signal
        else:
            self.live += by
            self.running += by * job.live
            self.stuck += by * (job.reason == STUCK)

    def tally(self) -> Tally:
        """The counts as the lifecycle takes them."""
        return Tally(self.live, self.running, self.stuck, tuple(self.states), self.exit_code, self.signal)


class ArrayElements:
    """Reconciles every array that is not over: makes its elements jobs in time, and ends it after the last."""

    def __init__(self, recorder: Recorder, clusters: Clusters) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self._counts: dict[int, _Count] = {}

    async def load(self) -> None:
        """Count the elements that ended before this daemon started, then go on."""
        heads = [entry.job.id for entry in self.recorder.registry if entry.job.array is not None and not entry.job.over]
        if heads:
            for stored in await self.recorder.repository.find(JobQuery(arrays=tuple(heads), over=True)):
                if stored.job.element is not None:
                    self._count(stored.job.element.array).add(stored.job, 1)
            # Before anything else is asked of the clusters, so that none starts more than it may now.
            try:
                async with asyncio.timeout(START_SECONDS):
                    await asyncio.gather(*map(self._recall, heads))
            except TimeoutError:
                log.warning("not every cluster was told of its arrays' throttles at the start; trying again")
        for head in heads:
            self.wake(head)

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """An array, or an element of one, has changed."""
        job = entry.job
        if job.array is not None:
            self.wake(job.id)
        elif job.element is not None:
            count = self._count(job.element.array)
            seen = (count.live, count.running, count.stuck)
            if before is not None:
                count.add(before, -1)
            count.add(job, 1)
            if seen != (count.live, count.running, count.stuck):
                self.wake(job.element.array)

    def tally(self, array: int) -> Tally:
        """The counts of an array's elements."""
        return self._count(array).tally()

    def wake(self, array: int) -> None:
        """Reconcile an array soon; calls meanwhile coalesce into one further pass."""
        count = self._count(array)
        if count.filling:
            count.again = True
            return
        count.filling = count.again = True
        self.recorder.spawn(self._tend(array, count), f"drawing from array {array}")

    async def _tend(self, array: int, count: _Count) -> None:
        try:
            while count.again:
                count.again = False
                if await self._draw(array, count):
                    count.again = True
            count.failures = 0
        except OverspanError as error:
            count.failures += 1
            # The first one is usual at a start, when no cluster has been polled yet; the same is not said for ever.
            if count.failures <= 2:
                level = logging.INFO if count.failures == 1 else logging.WARNING
                log.log(level, "array %d: %s; trying again", array, error, extra={"job": array})
            self.recorder.timers.set(f"array:{array}", self.recorder.clock() + RETRY_SECONDS, lambda: self.wake(array))
        finally:
            count.filling = False
        entry = self.recorder.registry.get(array)
        if entry is None or entry.job.over:
            self._counts.pop(array, None)

    async def _draw(self, array: int, count: _Count) -> bool:
        """One pass: some elements become jobs, or the array ends. False if there is nothing more to do."""
        entry = self.recorder.registry.get(array)
        if entry is None or entry.job.over:
            return False
        await self._tell(entry, count)
        now = self.recorder.clock()
        enforced, least = self._enforces(entry.cluster), self._find_step(entry.cluster)
        ranges = choose_drawn(entry.job, count.tally(), enforced, least) if judge(entry.job, now).now else ()
        if ranges:
            return await self.recorder.draw(array, ranges, find_reason(entry.job, count.running, "Priority"))
        if find_end(entry.job, count.tally(), now) is not None:
            await self.recorder.change((array,), lambda units: self._close(units, count))
        return False

    async def _recall(self, array: int) -> None:
        """Set a throttle again that an earlier daemon may not have set; failures are retried with the next pass."""
        entry = self.recorder.registry.get(array)
        try:
            if entry is not None:
                await self._tell(entry, self._count(array))
        except OverspanError as error:
            log.debug("array %d: %s", array, error, extra={"job": array})

    async def _tell(self, entry: JobEntry, count: _Count) -> None:
        """Set the present throttle on a cluster that enforces throttles itself, if elements may wait for it."""
        array = entry.job.array
        if array is None or count.told == array.throttle:
            return
        throttle = array.throttle
        keeper = self._find_keeper(entry.cluster) if count.live > count.running else None
        if keeper is not None:
            await keeper.set_throttle(entry.job.id, throttle)
        # Later launches carry the throttle with them.
        count.told = throttle

    def _find_keeper(self, cluster: str) -> Throttle | None:
        """The adapter of a cluster that enforces throttles itself."""
        try:
            adapter = self.clusters.get(cluster).adapter
        except OverspanError:
            return None
        return adapter if isinstance(adapter, Throttle) else None

    def _enforces(self, cluster: str) -> bool:
        """Whether elements may wait for their throttle on the cluster: not where they would take up limited slots."""
        return self._is_open(cluster) and self._find_keeper(cluster) is not None

    def _find_step(self, cluster: str) -> int:
        """How many elements wait on the cluster: all that it takes as one where it has arrays of its own."""
        sizes = self.clusters.find_traits(cluster).arrays
        return sizes.elements if sizes is not None and self._is_open(cluster) else AHEAD

    def _is_open(self, cluster: str) -> bool:
        """Whether any number of jobs may wait on the cluster."""
        found = self.clusters.find(cluster)
        return found is None or not found.limited

    def _close(self, units: list[UnitOfWork], count: _Count) -> None:
        for unit in units:
            end = find_end(unit.job, count.tally(), self.recorder.clock())
            if end is not None:
                unit.advance(end)

    def _count(self, array: int) -> _Count:
        return self._counts.setdefault(array, _Count())
