"""Limits on how many jobs of the daemon are on a cluster at once: a priority queue of jobs before a count of slots.

`SlotQueue` is the order and the count, pure. `JobLimits` keeps one for each limited cluster in step with the jobs.
A waiting job is known not to be on its cluster: before the first call for a job is made, its row is marked
in the store, so that a restart does not take 10,000 waiting jobs for perhaps submitted ones. So it is on clusters
elsewhere too, where a call takes longer than the mark: what never left this machine can be cancelled without them.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Iterable, Mapping

from overspan.bridge.config.settings import ClusterSettings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.outbox import SUBMIT, QueueKey
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.lifecycle.bids import note_bid
from overspan.bridge.model import events
from overspan.bridge.model.job import Job
from overspan.bridge.model.ranks import Rank, rank_job
from overspan.bridge.store.records import OutboxRow

MAX_RUNNING = "AssocMaxJobsLimit"
MAX_SUBMITTED = "AssocMaxSubmitJobLimit"
REASONS = (MAX_RUNNING, MAX_SUBMITTED)
"""Slurm's reasons for a job that a limit holds back."""

_AT_ONCE = 500
_SPARE = 64


class SlotQueue:
    """The slots of a cluster and the priority queue before them. A change costs O(log n) of those who wait."""

    def __init__(self, limit: int, reason: str) -> None:
        self.limit = limit
        self.reason = reason
        self._inside: set[int] = set()
        self._ranks: dict[int, Rank] = {}
        # Those who left or moved stay in the heap until they come up.
        self._heap: list[tuple[Rank, int]] = []

    def __len__(self) -> int:
        """How many wait."""
        return len(self._ranks)

    def __contains__(self, job_id: int) -> bool:
        """Whether a job waits."""
        return job_id in self._ranks

    @property
    def open(self) -> bool:
        """Whether a job waits and a slot is free."""
        return bool(self._ranks) and len(self._inside) < self.limit

    def wait(self, job_id: int, rank: Rank) -> None:
        """Queue a job, or move it to another rank."""
        if self._ranks.get(job_id) == rank:
            return
        self._ranks[job_id] = rank
        heapq.heappush(self._heap, (rank, job_id))
        if len(self._heap) > 2 * len(self._ranks) + _SPARE:
            self._heap = [(rank, job_id) for job_id, rank in self._ranks.items()]
            heapq.heapify(self._heap)

    def leave(self, job_id: int) -> None:
        """Remove a job from the queue, if it waits."""
        self._ranks.pop(job_id, None)

    def occupy(self, job_id: int) -> None:
        """Give a job a slot, even if none is free."""
        self.leave(job_id)
        self._inside.add(job_id)

    def free(self, job_id: int) -> None:
        """Take a job's slot back, if it has one."""
        self._inside.discard(job_id)

    def admit(self, most: int) -> list[int]:
        """Give free slots to the next jobs, at most `most`; these jobs."""
        admitted: list[int] = []
        while self.open and len(admitted) < most:
            rank, job_id = heapq.heappop(self._heap)
            if self._ranks.get(job_id) == rank:
                self.occupy(job_id)
                admitted.append(job_id)
        return admitted


def make_slot_queue(settings: ClusterSettings) -> SlotQueue | None:
    """The slot queue for a cluster's limits, None if it has none. The smaller limit applies."""
    limits = ((settings.max_running, MAX_RUNNING), (settings.max_submitted, MAX_SUBMITTED))
    known = [(limit, reason) for limit, reason in limits if limit is not None]
    return SlotQueue(*min(known)) if known else None


class JobLimits:
    """The slot queues of all limited clusters."""

    def __init__(self, recorder: Recorder, clusters: Clusters, limits: Mapping[str, ClusterSettings]) -> None:
        self.recorder = recorder
        self._clusters = clusters
        queues = {name: make_slot_queue(settings) for name, settings in limits.items()}
        self._queues = {name: queue for name, queue in queues.items() if queue is not None}
        self._marking: dict[str, bool] = {}
        """Whether the first calls of a cluster are marked; fixed when its first queue of this process begins."""

    def limits(self, key: QueueKey) -> bool:
        """Whether calls of a queue key wait for slots."""
        return key[1] == SUBMIT and key[0] in self._queues

    def follow(self, entry: JobEntry, cluster: str) -> bool:
        """Follow a change of a job on one of its clusters; whether a job may now be submitted there."""
        queue = self._queues.get(cluster)
        if queue is None:
            return False
        job = entry.job
        row = self.recorder.outbox.submit_of(job.id, cluster)
        if entry.watches(cluster):
            queue.occupy(job.id)
        elif row is None:
            queue.leave(job.id)
            queue.free(job.id)
        elif not self.recorder.outbox.tried(row.token) and not self._may_be_back(entry, row):
            queue.free(job.id)
            if job.id in queue:
                queue.wait(job.id, rank_job(job))
        return queue.open

    def _may_be_back(self, entry: JobEntry, row: OutboxRow) -> bool:
        """Whether the cluster may have requeued the job itself, under the launch that was reported as ended."""
        launch = row.payload["launch"]
        former = bool(entry.handle) and entry.cluster == row.cluster and entry.handle_launch == launch - 1
        former = former and (launch != entry.job.launch or entry.job.relaunches > 0)
        cluster = self._clusters.find(row.cluster) if former else None
        return cluster is not None and bool(cluster.traits.requeued_by)

    def leave(self, cluster: str, job_id: int) -> bool:
        """Free what a job had on a cluster that it has left; whether a job may now be submitted there."""
        queue = self._queues.get(cluster)
        if queue is None:
            return False
        queue.leave(job_id)
        queue.free(job_id)
        return queue.open

    def take(self, key: QueueKey, most: int) -> list[OutboxRow]:
        """Take the submissions that have a slot, by rank; the other jobs wait with the limit as their reason."""
        queue, outbox = self._queues[key[0]], self.recorder.outbox
        again, fresh = [], []
        for row in outbox.claim(key, self.recorder.clock()):
            entry = self.recorder.registry.get(row.job_id)
            if entry is None:
                continue
            if outbox.tried(row.token) or self._may_be_back(entry, row):
                # The cluster may have it already.
                queue.occupy(row.job_id)
                again.append(row.job_id)
            else:
                queue.wait(row.job_id, rank_job(entry.job))
                fresh.append(row.job_id)
        admitted = [*again, *queue.admit(max(0, most - len(again)))]
        waiting = [job_id for job_id in fresh if job_id in queue]
        if waiting:
            self.recorder.spawn(self._tell(key[0], waiting), f"telling who waits for the cluster {key[0]}")
        rows = (outbox.submit_of(job_id, key[0]) for job_id in admitted)
        return outbox.start(row.token for row in rows if row is not None)

    def refuse(self, row: OutboxRow) -> None:
        """Free the slot of a job that the cluster refused for now."""
        queue = self._queues.get(row.cluster)
        if queue is not None and row.kind == SUBMIT:
            queue.free(row.job_id)

    async def mark(self, key: QueueKey, rows: Iterable[OutboxRow]) -> None:
        """Store, where a cluster's calls are marked, that these are about to be made. Raises StoreFailed."""
        if self._marking.get(key[0], self.limits(key)):
            defer = self.recorder.repository.defer
            await asyncio.gather(*(defer(row.token, 0.0, "") for row in rows if not row.tries))

    async def recall(self, key: QueueKey) -> None:
        """Tell calls that an earlier process may have made from those that only waited. Raises StoreFailed."""
        outbox, repository = self.recorder.outbox, self.recorder.repository
        marker = f"marked:{key[0]}"
        marked = bool(await repository.meta(marker))
        marking = self._marking[key[0]] = self._is_marking(key, marked)
        owed = [row for row in outbox.of_queue(key) if not row.tries and outbox.tried(row.token)]
        if marking and marked:
            outbox.untry(row.token for row in owed)
            # Now that they are known to be here, what is due for them can be seen.
            await self.recorder.change([row.job_id for row in owed], lambda units: None)
        elif marking:
            await self.mark(key, owed)
        if marking is not marked:
            await repository.set_meta(marker, "1" if marking else "")

    def _is_marking(self, key: QueueKey, marked: bool) -> bool:
        """Whether first calls are marked: as an earlier process did for a cluster that is not configured any more."""
        if self._clusters.find(key[0]) is None:
            return marked
        traits = self._clusters.find_traits(key[0])
        return self.limits(key) or not (traits.this_machine or traits.stateless)

    async def _tell(self, cluster: str, job_ids: list[int]) -> None:
        queue = self._queues[cluster]

        def work(units: list[UnitOfWork]) -> None:
            now = self.recorder.clock()
            for unit in units:
                if unit.job.id not in queue:
                    continue
                if unit.cluster != cluster:
                    unit.job = note_bid(unit.job, cluster, reason=queue.reason)
                elif not unit.dispatched and unit.job.reason != queue.reason:
                    unit.advance(events.Queued(now, queue.reason))

        for start in range(0, len(job_ids), _AT_ONCE):
            await self.recorder.change(job_ids[start : start + _AT_ONCE], work)


def is_held_back(job: Job) -> bool:
    """Whether the job's reason is a limit."""
    return job.reason in REASONS
