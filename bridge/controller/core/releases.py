"""Lets clusters remove what ended launches have left there, for adapters that ask for it.

An adapter is told what is still wanted and removes the rest, so what a dead daemon left behind goes as well. That
something may be left on a cluster is noted in the store as long as it is so, and a start without jobs contacts no
cluster for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter

from overspan.adapters.abilities import Release
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
"""How long ends are gathered before the cluster is told."""
_OWED = "owed"
MOST_LAUNCHES = 200
"""So many launches a job is taken to have had at most whose record cannot be read."""


class LaunchReleases:
    """One loop for each cluster where launches have to be released."""

    def __init__(self, recorder: Recorder, clusters: Clusters, backoff: Backoff) -> None:
        self.recorder = recorder
        self.clusters = clusters
        self.backoff = backoff
        recorder.followers.append(self._follow)
        recorder.notifications.sending = self._note
        recorder.notifications.sent = self._sent
        self._loops: dict[str, asyncio.Task[None]] = {}
        self._wakeups: dict[str, Wakeup] = {}
        self._noted: set[str] = set()
        self._sending: Counter[str] = Counter()
        """How many calls with launches are under way to each cluster."""

    async def start(self) -> None:
        """Take up what an earlier daemon left. Raises StoreFailed."""
        for cluster in self.clusters:
            if await self.recorder.repository.meta(_key(cluster.name)) == _OWED:
                self._noted.add(cluster.name)
                self._wake(cluster.name)

    async def close(self) -> None:
        """Stop; what is owed stays noted."""
        loops = list(self._loops.values())
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    async def _note(self, name: str) -> None:
        """Launches are about to be sent to a cluster; they may leave something there even if no answer comes."""
        cluster = self.clusters.get(name)
        if name not in self._noted and isinstance(cluster.adapter, Release):
            await self.recorder.repository.set_meta(_key(name), _OWED)
            self._noted.add(name)
        self._sending[name] += 1

    def _sent(self, name: str, overtaken: bool) -> None:
        """They were sent; `overtaken` ones are not wanted any more, and a release under way may have missed them."""
        self._sending[name] -= 1
        if overtaken and name in self._noted:
            self._wake(name)

    def _follow(self, before: Job | None, entry: JobEntry) -> None:
        """A job has ended, or begins another launch, here or elsewhere, or a bid has: release the former one."""
        if before is None:
            return
        present = {bid.launch for bid in entry.job.bids}
        left = {bid.cluster for bid in before.bids if bid.launch not in present}
        if (entry.job.over and not before.over) or entry.job.launch != before.launch:
            left |= {entry.cluster, before.cluster}
        for name in sorted(left & self._noted):
            self._wake(name)

    def _wake(self, name: str) -> None:
        if name not in self._loops:
            self._wakeups[name] = Wakeup()
            self._loops[name] = asyncio.ensure_future(self._run(self.clusters.get(name)))
        self._wakeups[name].wake()

    async def _run(self, cluster: Cluster) -> None:
        """The never-ending loop of a cluster: told of an end, it gathers others and releases them together."""
        wakeup, failures, seen = self._wakeups[cluster.name], 0, 0
        while True:
            if not failures:
                await wakeup.wait(seen=seen)
                await asyncio.sleep(GATHER_SECONDS)
            seen = wakeup.count
            try:
                await self._release(cluster)
                failures = 0
            except OverspanError as error:
                log.info(
                    "cluster %s: ended launches are released later: %s",
                    cluster.name,
                    error,
                    extra={"cluster": cluster.name},
                )
                failures += 1
            except Exception:
                log.exception("releasing ended launches of cluster %s", cluster.name)
                failures += 1
            if failures:
                now = self.recorder.clock()
                await wakeup.wait(timeout=next_try(self.backoff, now, failures, cluster.name) - now, seen=seen)

    async def _release(self, cluster: Cluster) -> None:
        adapter = cluster.adapter
        if not isinstance(adapter, Release):
            return
        if any(entry.unwritten is not None for entry in self.recorder.registry):
            # The next daemon would take a launch whose end is not on record for one that was lost.
            raise StoreFailed("there are ends that are not recorded yet")
        busy, count = self._is_busy(cluster.name), self._wakeups[cluster.name].count
        await adapter.release(self.recorder.completion.installation, *self.wanted())
        # What ended during the call has not been released by it.
        idle = not self._sending[cluster.name] and self._wakeups[cluster.name].count == count
        if idle and not busy and not self._is_busy(cluster.name):
            self._noted.discard(cluster.name)
            await self.recorder.repository.set_meta(_key(cluster.name), "")

    def wanted(self) -> tuple[frozenset[str], frozenset[str]]:
        """The handles that are watched and the tokens of submissions that are owed, of every cluster in the book.

        What is wanted is what jobs say, not what the configuration says: two of its clusters may be one place, and one
        that was renamed, removed or pointed elsewhere has its launches still.
        """
        registry, outbox = self.recorder.registry, self.recorder.outbox
        watched = [registry.watched(name) for name in registry.watched_clusters()]
        owed = [outbox.of_queue(key) for key in outbox.queue_keys() if key[1] == SUBMIT]
        handles, tokens = self._list_aside()
        return handles.union(*watched), tokens.union(row.token for rows in owed for row in rows)

    def _list_aside(self) -> tuple[frozenset[str], frozenset[str]]:
        """What may be there of jobs whose records cannot be read: it is wanted until somebody knows better."""
        registry, installation = self.recorder.registry, self.recorder.completion.installation
        damages = self.recorder.repository.damages if registry.aside else ()
        handles = frozenset(split_handle(damage.handle)[1] for damage in damages if damage.handle)
        stored = frozenset(
            f"{installation}-{job}-{launch}" for job in registry.aside for launch in range(MOST_LAUNCHES)
        )
        return handles, stored

    def _is_busy(self, name: str) -> bool:
        """Whether a cluster has launches, or is to have some."""
        return bool(self.recorder.registry.watched(name) or self.recorder.outbox.of_queue((name, SUBMIT)))


def _key(cluster: str) -> str:
    return f"release:{cluster}"
