"""Reconciliation of ended launches: has clusters remove what these have left there (adapters with `Cleanup`).

An adapter gets the launches that are still wanted and removes the others, so leftovers of an earlier daemon go too. The
store marks each cluster that may have leftovers, so that a start without jobs contacts no cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter

from overspan.adapters.abilities import Cleanup
from overspan.bridge.controller.core.across.launch_remains import LaunchRemains
from overspan.bridge.controller.core.across.projection import list_handles
from overspan.bridge.controller.core.backoff import next_try
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.outbox import SUBMIT
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry, split_handle
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.model.errors import OverspanError, StoreFailed
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Backoff

log = logging.getLogger(__name__)

GATHER_SECONDS = 0.2
"""Seconds for which ends are collected before one call releases them."""
GATHER_TIMES = 20
"""How many times as long as the last release took: with many jobs it may not take all of the processor."""
LOOK_SECONDS = (1.0, 2.0, 4.0, 8.0)
"""Seconds between looks at what still runs of lost launches; the last one from then on."""
_OWED = "owed"
MOST_LAUNCHES = 200
"""The most launches assumed of a job whose record cannot be read."""


class LaunchReleases:
    """One loop for each cluster where launches have to be released."""

    def __init__(self, recorder: Recorder, clusters: Clusters, backoff: Backoff) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self.backoff = backoff
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._wakeups: dict[str, Wakeup] = {}
        self._noted: set[str] = set()
        self._sending: Counter[str] = Counter()
        """How many calls with launches are under way to each cluster."""
        self.remains = LaunchRemains(recorder.registry, recorder.completion.installation)

    async def start(self) -> None:
        """Go on with the clusters that an earlier daemon marked. Raises StoreFailed."""
        for cluster in self.clusters:
            if await self.recorder.repository.meta(_key(cluster.name)) == _OWED:
                self._noted.add(cluster.name)
                self._wake(cluster.name)
        for entry in self.recorder.registry:
            if entry.job.launch and not entry.job.over and entry.handle_launch != entry.job.launch:
                self._note_remains(entry)

    async def close(self) -> None:
        """Stop; clusters with leftovers stay marked in the store."""
        loops = list(self._loops.values())
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def note(self, name: str) -> None:
        """Mark a cluster before launches are sent: they may leave something there even without an answer."""
        for single in self.clusters.list_single(name):
            cluster = self.clusters.get(single)
            if single not in self._noted and isinstance(cluster.adapter, Cleanup) and not self._is_stateless(single):
                await self.recorder.repository.set_meta(_key(single), _OWED)
                self._noted.add(single)
            self._sending[single] += 1

    def sent(self, name: str, overtaken: bool) -> None:
        """End the call under way; `overtaken` launches are unwanted, and a release under way may have missed them."""
        for single in self.clusters.list_single(name):
            self._sending[single] -= 1
            if overtaken and self._may_have_leftovers(single):
                self._wake(single)

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """Release the launch or bid that a job has left: it ended, or began another one."""
        if before is None:
            return
        present = {bid.launch for bid in entry.job.bids}
        left = {bid.cluster for bid in before.bids if bid.launch not in present}
        if (entry.job.over and not before.over) or entry.job.launch != before.launch:
            left |= {entry.cluster, before.cluster}
        if entry.job.launch != before.launch and any(task.live for task in before.tasks):
            self._note_remains(entry)
        singles = {single for name in left for single in self.clusters.list_single(name)}
        for name in sorted(singles):
            if self._may_have_leftovers(name):
                self._wake(name)

    def _note_remains(self, entry: JobEntry) -> None:
        singles = self.clusters.list_single(entry.cluster)
        if len(singles) > 1:
            self.remains.note(entry, self._noted.intersection(singles))

    def _may_have_leftovers(self, name: str) -> bool:
        return name in self._noted or self._is_stateless(name)

    def _is_stateless(self, name: str) -> bool:
        """Whether what ends there needs no mark in the store: the next daemon's adapter begins without it."""
        cluster = self.clusters.find(name)
        return cluster is not None and cluster.opened and cluster.traits.stateless

    def _wake(self, name: str) -> None:
        if name not in self._loops:
            self._wakeups[name] = Wakeup()
            self._loops[name] = asyncio.ensure_future(self._run(name))
        self._wakeups[name].wake()

    async def _run(self, name: str) -> None:
        """The endless loop of a cluster: wait for an end, collect others, release them together.

        The cluster is found each time, since a pool may be another one of the same name by now.
        """
        wakeup, failures, seen, took, looks = self._wakeups[name], 0, 0, 0.0, 0
        while True:
            if not failures:
                looks = looks + 1 if self.remains.list_jobs(name) else 0
                rest = LOOK_SECONDS[min(looks, len(LOOK_SECONDS)) - 1] if looks else None
                await wakeup.wait(timeout=rest, seen=seen)
                await asyncio.sleep(max(GATHER_SECONDS, GATHER_TIMES * took))
            seen, begun = wakeup.count, time.thread_time()
            try:
                if (cluster := self.clusters.find(name)) is not None:
                    await self._release(cluster)
                failures, took = 0, time.thread_time() - begun
            except OverspanError as error:
                log.info(
                    "cluster %s: ended launches are released later: %s",
                    name,
                    error,
                    extra={"cluster": name},
                )
                failures += 1
            except Exception:
                log.exception("releasing ended launches of cluster %s", name)
                failures += 1
            if failures:
                now = self.recorder.clock()
                await wakeup.wait(timeout=next_try(self.backoff, now, failures, name) - now, seen=seen)

    async def _release(self, cluster: Cluster) -> None:
        adapter = cluster.adapter
        if not isinstance(adapter, Cleanup):
            return
        if any(entry.unwritten is not None for entry in self.recorder.registry):
            # The next daemon would take a launch without a recorded end for a lost one.
            raise StoreFailed("there are ends that are not recorded yet")
        lost = self.remains.list_jobs(cluster.name)
        busy, count = self._is_busy(cluster.name), self._wakeups[cluster.name].count
        await adapter.release(self.recorder.completion.installation, *self.wanted())
        for job_id in await self.remains.look(cluster.name, adapter, lost):
            self.recorder.submit_soon(job_id)
        # The call has not released what ended meanwhile.
        idle = not self._sending[cluster.name] and self._wakeups[cluster.name].count == count
        if idle and not self._has_remains(cluster) and not busy and not self._is_busy(cluster.name):
            await self._unmark(cluster.name)

    def _has_remains(self, cluster: Cluster) -> bool:
        """Whether the next daemon has to look at a cluster again, although all that has ended is released there."""
        # The next daemon's adapter has to be called before it looks after leftovers.
        has_leftovers = cluster.traits.has_leftovers
        return bool(self.remains.list_jobs(cluster.name)) or (has_leftovers is not None and has_leftovers())

    async def _unmark(self, name: str) -> None:
        if name in self._noted:
            self._noted.discard(name)
            await self.recorder.repository.set_meta(_key(name), "")

    def wanted(self) -> tuple[frozenset[str], frozenset[str]]:
        """The handles that are watched and the tokens of owed submissions, of all clusters that have jobs.

        Not of one cluster alone: two configured clusters may be the same place, and a cluster that was renamed, removed
        or pointed elsewhere still has its launches.
        """
        registry, outbox = self.recorder.registry, self.recorder.outbox
        watched = [registry.watched(name) for name in registry.watched_clusters()]
        owed = [row for key in outbox.queue_keys() if key[1] == SUBMIT for row in outbox.of_queue(key)]
        entries = (registry.get(row.job_id) for row in owed)
        arrays = {entry.job.element.array for entry in entries if entry is not None and entry.job.element is not None}
        # Elements of a native array share its files.
        shared = {f"{self.recorder.completion.installation}-{array}-0" for array in arrays}
        handles, tokens = self._list_aside()
        # What was accepted with a job that is just being stored is neither watched nor owed yet.
        handles |= registry.storing
        parts = [list_handles(text) for name in registry.watched_clusters() for text in registry.watched(name)]
        return handles.union(*watched, *parts), tokens.union(shared, (row.token for row in owed))

    def _list_aside(self) -> tuple[frozenset[str], frozenset[str]]:
        """Handles and tokens of jobs whose records cannot be read: nothing of theirs is removed."""
        registry, installation = self.recorder.registry, self.recorder.completion.installation
        damages = self.recorder.repository.damages if registry.aside else ()
        handles = frozenset(split_handle(damage.handle)[1] for damage in damages if damage.handle)
        stored = frozenset(
            f"{installation}-{job}-{launch}" for job in registry.aside for launch in range(MOST_LAUNCHES)
        )
        return handles, stored

    def _is_busy(self, name: str) -> bool:
        """Whether a cluster has launches, or is to have some."""
        registry, outbox = self.recorder.registry, self.recorder.outbox
        joined = {*registry.watched_clusters(), *(key[0] for key in outbox.queue_keys() if key[1] == SUBMIT)}
        places = [place for place in joined if name in self.clusters.list_single(place)]
        return any(registry.watched(place) or outbox.of_queue((place, SUBMIT)) for place in places)


def _key(cluster: str) -> str:
    return f"release:{cluster}"
