"""Transactional outbox: makes the calls that are owed to clusters, with one loop for each queue key.

The transaction that writes a call's effect also deletes the call. If the daemon dies in between, the next one makes the
call again with the same token, and the adapter finds the earlier effect.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import replace

from overspan.adapters.contract import Accepted, Launch, Order, Refusal, SomeUnanswered, Unmet, Unsent
from overspan.adapters.traits import ArraySizes
from overspan.bridge.config.settings import ClusterSettings
from overspan.bridge.controller.core.across.projection import find_handle
from overspan.bridge.controller.core.backoff import REFUSED, next_try
from overspan.bridge.controller.core.bids import answer_bid, bid_of
from overspan.bridge.controller.core.cluster_locations import ClusterLocations
from overspan.bridge.controller.core.clusters import Cluster, time_call
from overspan.bridge.controller.core.job_access import JobAccess
from overspan.bridge.controller.core.job_limits import JobLimits, is_held_back
from overspan.bridge.controller.core.late_ends import HELD, LateEnds
from overspan.bridge.controller.core.observation import follow_report
from overspan.bridge.controller.core.outbox import SUBMIT, QueueKey
from overspan.bridge.controller.core.recording import Recorder, stored_handle
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import (
    UnitOfWork,
    is_end_of,
    is_hold,
    is_kept,
    is_start,
    is_whole_cancel,
)
from overspan.bridge.controller.core.wakeups import Wakeup
from overspan.bridge.lifecycle.bids import find_launch
from overspan.bridge.lifecycle.failover import list_next, word_refusals
from overspan.bridge.lifecycle.lookup import find_attempt
from overspan.bridge.lifecycle.stages import carry
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.documents import decode
from overspan.bridge.model.errors import Conflict, OverspanError, StoreFailed, Unreachable
from overspan.bridge.model.events import Event, event_from_document
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import split_clusters, take_part
from overspan.bridge.model.spec import Backoff, Dependency
from overspan.bridge.store.records import OutboxRow

log = logging.getLogger(__name__)

BATCH = 500
"""Calls handed to an adapter at once."""
_NAMED = 5
"""How many jobs a line of the log names."""
AGAIN_SECONDS = 1.0
"""Seconds after which a call is made again that was not answered when others of its batch were."""

CallAnswer = Accepted | Refusal | None


class Dispatcher:
    """Works through the outbox; the loop of a queue key starts with its first call and then waits for more."""

    def __init__(
        self,
        recorder: Recorder,
        locations: ClusterLocations,
        backoff: Backoff,
        limits: Mapping[str, ClusterSettings] | None = None,
        environment: Mapping[str, str] | None = None,
        access: JobAccess | None = None,
    ) -> None:
        self.recorder = recorder
        self.locations = locations
        self.clusters = locations.clusters
        self.backoff = backoff
        self.environment = environment or {}
        self.access = access
        self._late_ends = LateEnds(recorder.outbox)
        self.job_limits = JobLimits(recorder, self.clusters, limits or {})
        self._loops: dict[QueueKey, asyncio.Task[None]] = {}
        self._wakeups: dict[QueueKey, Wakeup] = {}
        self._failures: Counter[QueueKey] = Counter()

    def start(self) -> None:
        """Begin with everything that is owed already."""
        for key in list(self.recorder.outbox.queue_keys()):
            self.wake(key)

    def wake(self, key: QueueKey) -> None:
        """Look for calls of a queue key."""
        if key not in self._loops:
            self._wakeups[key] = Wakeup()
            self._loops[key] = asyncio.ensure_future(self._run(key))
        self._wakeups[key].wake()

    async def close(self) -> None:
        """Stop. Calls that were not answered yet stay owed."""
        loops = list(self._loops.values())
        for loop in loops:
            loop.cancel()
        await asyncio.gather(*loops, return_exceptions=True)

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """Wake the submissions of clusters where the change of a job frees a slot or reorders the queue."""
        places = entry.places()
        left = () if before is None else (before.cluster, *(bid.cluster for bid in before.bids))
        for name in left:
            if name and name not in places and self.job_limits.leave(name, entry.job.id):
                self.wake((name, SUBMIT))
        for name in places:
            if self.job_limits.follow(entry, name):
                self.wake((name, SUBMIT))

    def _take(self, key: QueueKey) -> list[OutboxRow]:
        if self.job_limits.limits(key):
            return self.job_limits.take(key, BATCH)
        sizes = self.clusters.find_traits(key[0]).arrays
        if sizes is not None and key[1] == SUBMIT:
            return self._take_whole(key, sizes)
        # What is ordered of all elements of an array is one order there.
        most = BATCH if sizes is None else max(BATCH, sizes.elements)
        return self.recorder.outbox.take(key, self.recorder.clock(), most)

    def _take_whole(self, key: QueueKey, sizes: ArraySizes) -> list[OutboxRow]:
        """The oldest submissions, with the elements of an array as one of them."""
        outbox = self.recorder.outbox
        chosen: list[str] = []
        groups: dict[tuple[str, int], int] = {}
        for row in outbox.claim(key, self.recorder.clock()):
            entry = self.recorder.registry.get(row.job_id)
            element = None if entry is None else entry.job.element
            group = ("job", row.job_id) if element is None else ("array", element.array)
            known = groups.get(group, 0)
            if known >= sizes.elements or (not known and len(groups) >= sizes.submissions):
                outbox.offer(row.token)
            else:
                groups[group] = known + 1
                chosen.append(row.token)
        return outbox.start(chosen)

    async def _recall(self, key: QueueKey) -> None:
        """Find out which submissions only waited when an earlier process died."""
        tries = 0
        while True:
            try:
                return await self.job_limits.recall(key)
            except OverspanError as error:
                log.warning("cluster %s: %s; trying again", key[0], error, extra={"cluster": key[0]})
                tries += 1
                await self._rest(key, Wakeup(), next_try(self.backoff, self.recorder.clock(), tries, key[0]))

    async def _run(self, key: QueueKey) -> None:
        """The endless loop of a queue key."""
        if key[1] == SUBMIT:
            await self._recall(key)
        while True:
            rows = self._take(key)
            if not rows:
                await self._rest(key, self._wakeups[key], self.recorder.outbox.next_time(key))
                continue
            retry_at = await self._make(key, rows)
            if retry_at is not None:
                # New calls do not cut this wait short: the cluster would be asked again for each of them.
                await self._rest(key, Wakeup(), retry_at)

    async def _rest(self, key: QueueKey, wakeup: Wakeup, until: float | None) -> None:
        name = f"queue:{key[0]}:{key[1]}"
        if until is not None:
            self.recorder.timers.set(name, until, wakeup.wake)
        await wakeup.wait()
        self.recorder.timers.drop(name)

    async def _make(self, key: QueueKey, rows: list[OutboxRow]) -> float | None:
        """Make calls; the time to wait for when the cluster did not answer or nothing could be written."""
        cluster = self.clusters.find(key[0])
        try:
            if key[1] == SUBMIT:
                await self._arrive(cluster, rows)
                await self._find_out(cluster, rows)
            if cluster is None:
                self._forget_first(rows)
                raise OverspanError(f"the cluster {key[0]} is not configured any more")
            await (self._submit if key[1] == SUBMIT else self._order)(cluster, rows)
        except Exception as error:
            return self._give_back(key, rows, error)
        self._failures.pop(key, None)
        return None

    def _give_back(self, key: QueueKey, rows: list[OutboxRow], error: Exception) -> float:
        cluster, now = self.clusters.find(key[0]), self.recorder.clock()
        self._failures[key] += 1
        if not isinstance(error, OverspanError):
            log.error("calling cluster %s", key[0], exc_info=error, extra={"cluster": key[0]})
        if isinstance(error, Unsent):
            self._forget_first(rows)
        for row in rows:
            self.recorder.outbox.offer(row.token)
        if cluster is not None and not isinstance(error, StoreFailed | Conflict):
            cluster.failed(now, error)
        self._tell_unreached(rows)
        again = next_try(self.backoff, now, self._failures[key], key[0])
        _log_failure(key, rows, error, again - now)
        return again

    def _tell_unreached(self, rows: list[OutboxRow]) -> None:
        """Offer jobs for failover whose cluster certainly has not received them."""
        outbox = self.recorder.outbox
        here = [row for row in rows if row.kind == SUBMIT and outbox.owes(row.token) and not outbox.tried(row.token)]
        if here:
            self.recorder.changes.unreached.publish([row.job_id for row in here])

    async def _arrive(self, cluster: Cluster | None, rows: list[OutboxRow]) -> None:
        """Check that a cluster's name still means the place of its launches. Raises Unreachable; nothing is sent."""
        try:
            if cluster is not None:
                await self.locations.leave(cluster)
        except OverspanError:
            self._forget_first(rows)
            raise

    def _forget_first(self, rows: Iterable[OutboxRow]) -> None:
        """Count the rows as untried, unless an earlier try may have reached the cluster: this one sent nothing."""
        outbox = self.recorder.outbox
        outbox.untry([row.token for row in rows if outbox.is_first(row.token)])

    async def _find_out(self, cluster: Cluster | None, rows: list[OutboxRow]) -> None:
        """Ask the cluster for a sign of life before a submission that must not be in doubt. Raises Unreachable.

        That is so for jobs that can fail over: if the cluster is down, they are known not to be there. For a cluster
        that did not answer before, it is so for all jobs, which can then still be cancelled at once.
        """
        outbox, registry = self.recorder.outbox, self.recorder.registry
        entries = [(row, registry.get(row.job_id)) for row in rows if outbox.is_first(row.token)]
        now, free = self.recorder.clock(), [row for row, entry in entries if entry is not None and list_next(entry.job)]
        if free:
            trouble = "not configured any more" if cluster is None else await cluster.find_trouble(now)
        elif entries and cluster is not None and cluster.stale_since is not None:
            free, trouble = [row for row, _ in entries], await cluster.find_silence(now)
        else:
            return
        if trouble:
            outbox.untry(row.token for row in free)
            for row in free:
                self.job_limits.refuse(row)
            raise Unreachable(trouble)

    async def _submit(self, cluster: Cluster, rows: list[OutboxRow]) -> None:
        async with self.recorder.registry.locked(row.job_id for row in rows):
            # A change that began before these calls counted as tried (a cancel, say) is written by now.
            rows = [row for row in rows if self.recorder.outbox.owes(row.token)]
        await self.job_limits.mark((cluster.name, SUBMIT), rows)
        launches = []
        for row in rows:
            entry = self.recorder.registry.get(row.job_id)
            job = None if entry is None else find_launch(entry.job, row.payload["launch"])
            if entry is not None and job is not None:
                needs = self.recorder.dependency_resolver.list_unmet(entry, job, cluster.name)
                # The cluster may have it already, so the call has to find it.
                wanted = not self._is_cancelled(row.job_id)
                launches.append(
                    (
                        row,
                        replace(
                            self.make_launch(row.token, job, cluster.name),
                            needs=needs,
                            wanted=wanted,
                            access=self.describe_access(job, cluster.name),
                        ),
                    )
                )
        _log_repeats([row for row, _ in launches if not self.recorder.outbox.is_first(row.token)])
        taken: set[str] = set()

        def write(unit: UnitOfWork, row: OutboxRow, answer: CallAnswer, now: float) -> None:
            # A bid may have lost its race meanwhile.
            if any(owed.token == row.token for owed in unit.owed):
                taken.add(row.token)
                _accept(unit, row, answer, now)
                if isinstance(answer, Accepted) and answer.report is not None and unit.launched:
                    follow_report(unit, answer.report, now, cluster.traits)

        await self.recorder.changes.before_send.publish(cluster.name)
        try:
            call = cluster.adapter.submit([launch for _, launch in launches]) if launches else None
            pairs = await self._hear(cluster, [row for row, _ in launches], call)
            # Before the handles: no handle is ever stored without its place.
            await self.locations.keep(cluster, [answer for _, answer in pairs])
            await self._conclude(pairs, write)
        finally:
            left = (row for row, _ in launches if row.token not in taken and not self.recorder.outbox.owes(row.token))
            self.recorder.changes.after_send.publish(cluster.name, any(left))

    def list_waiting(self, name: str) -> list[Launch]:
        """The launches that a cluster has accepted and of which no grant is stored, as it was sent them."""
        registry, completion = self.recorder.registry, self.recorder.completion
        cluster = self.clusters.find(name)
        if cluster is None or cluster.displaced:
            return []
        found = []
        for handle, job_id in registry.watched(name).items():
            entry = registry.get(job_id)
            if entry is not None and entry.handle == handle and entry.job.granted_at is None:
                found.append(self.make_launch(completion.name_launch(job_id, entry.job.launch), entry.job, name))
        return [*found, *self._list_waiting_parts(name)]

    def _list_waiting_parts(self, name: str) -> list[Launch]:
        """The parts of groups across that a cluster has accepted, while not all parts have their grant."""
        found = []
        for place in self.recorder.registry.watched_clusters():
            if name not in split_clusters(place):
                continue
            for handle, job_id in self.recorder.registry.watched(place).items():
                entry = self.recorder.registry.get(job_id)
                if entry is not None and entry.job.granted_at is None and find_handle(handle, name):
                    token = self.recorder.completion.name_launch(job_id, entry.job.launch)
                    found.append(self.make_launch(token, take_part(entry.job, name), name))
        return found

    def list_cursors(self, name: str) -> dict[str, str]:
        """The stored cursor of each launch on a cluster that is not over, by its handle."""
        return dict(self.recorder.registry.cursors(name))

    def find_launch(self, name: str, handle: str) -> Launch | None:
        """The launch of a handle, with the facts that the store has of it; None for one that is over or unknown."""
        entry = self.recorder.registry.get(self.recorder.registry.watched(name).get(handle, 0))
        if entry is None or entry.handle != handle:
            return None
        token = self.recorder.completion.name_launch(entry.job.id, entry.job.launch)
        return self.make_launch(token, entry.job, name)

    def make_launch(self, token: str, job: Job, cluster: str) -> Launch:
        """A launch to send, with paths as its cluster has them.

        Held, where an order is owed that is to hold or cancel it, it cannot start before that.
        """
        job = self.clusters.shared_paths.move(carry(job), cluster)
        job = replace(job, spec=job.spec.without_evaluations()) if job.spec.on_checkpoint else job
        held = self._is_cancelled(job.id) or self._is_held(job)
        return Launch(token, replace(job, held=True) if held else job, self.environment, self._find_throttle(job))

    def describe_access(self, job: Job, cluster: str) -> str:
        """What the commands of a job's tasks are given on a cluster to reach the daemon; empty where nothing leads."""
        return "" if self.access is None else self.access.describe(job, cluster)

    def _is_cancelled(self, job_id: int) -> bool:
        """Whether the launch is to be cancelled whole as soon as its cluster has it."""
        return any(map(is_whole_cancel, self.recorder.outbox.of_job(job_id)))

    def _is_held(self, job: Job) -> bool:
        """Whether the launch is to be held as soon as its cluster has it."""
        owed = self.recorder.outbox.of_job(job.id)
        return any(is_hold(order) and order.payload["launch"] == job.launch for order in owed)

    def _find_throttle(self, job: Job) -> int | None:
        """How many of the array that a job is of may run at once; as submitted where the array is over."""
        if job.element is None:
            return None
        head = self.recorder.registry.get(job.element.array)
        if head is not None and head.job.array is not None:
            return head.job.array.throttle
        return job.spec.array.throttle if job.spec.array is not None else None

    async def _order(self, cluster: Cluster, rows: list[OutboxRow]) -> None:
        orders, now = [], self.recorder.clock()
        for row in rows:
            entry = self.recorder.registry.get(row.job_id)
            # Where the submission is still under way, its answer offers the order again.
            if entry is not None and entry.launched and entry.handle_launch == row.payload["launch"]:
                event = self._late_ends.renew(row, event_from_document(dict(row.payload["event"])), now)
                due = self._late_ends.find_time(row, event, now)
                if due > now:
                    self.recorder.outbox.defer(row.token, due, HELD)
                    continue
                needs = await self._find_needs(entry, event) if isinstance(event, events.SetDependency) else ()
                again = not self.recorder.outbox.is_first(row.token)
                orders.append((row, Order(row.token, entry.handle, event, needs, again)))
        call = cluster.adapter.order([order for _, order in orders]) if orders else None
        pairs = await self._hear(cluster, [row for row, _ in orders], call)
        for row, answer in pairs:
            if answer is None:
                self._late_ends.note(row, self.recorder.clock())
        await self._conclude(pairs, _obey)

    async def _hear(
        self, cluster: Cluster, rows: Sequence[OutboxRow], call: Awaitable[Sequence[CallAnswer]] | None
    ) -> list[tuple[OutboxRow, CallAnswer]]:
        """The answers of a call, each with its row; a row without an answer is tried again after AGAIN_SECONDS."""
        if call is None:
            # Nothing was asked, so nothing was answered.
            return []
        began = time_call()
        try:
            pairs = list(zip(rows, await call, strict=True))
        except SomeUnanswered as some:
            pairs = [(row, some.answers[row.token]) for row in rows if row.token in some.answers]
            now = self.recorder.clock()
            for row in rows:
                if row.token not in some.answers:
                    self.recorder.outbox.put_off(row.token, now, now + AGAIN_SECONDS)
                    log.info("job %d: a call has no answer yet (%s)", row.job_id, row.kind, extra=_fields(row))
            if not pairs:
                return pairs
        cluster.note_answer(self.recorder.clock(), time_call() - began)
        cluster.answered()
        return pairs

    async def _find_needs(self, entry: JobEntry, event: events.SetDependency) -> tuple[Unmet, ...]:
        """What is not met of a new dependency."""
        resolver = self.recorder.dependency_resolver
        job = await resolver.preview(entry, decode(Dependency, event.dependency))
        return resolver.list_unmet(entry, job, entry.cluster)

    async def _conclude(
        self,
        pairs: Sequence[tuple[OutboxRow, CallAnswer]],
        write: Callable[[UnitOfWork, OutboxRow, CallAnswer, float], None],
    ) -> None:
        """Write what the answers mean, in one transaction."""
        now = self.recorder.clock()
        deferred = [
            (row, answer, next_try(REFUSED, now, row.tries + 1, row.token))
            for row, answer in pairs
            if isinstance(answer, Refusal) and answer.transient
        ]
        for row, refusal, at in deferred:
            # In memory first: from here on the cluster is known not to have the job.
            self.recorder.outbox.defer(row.token, at, refusal.message)
            if refusal.message != row.error:
                words = (row.job_id, row.kind, refusal.message, at - now)
                log.info("job %d: %s is refused for now: %s; again in %.0f s", *words, extra=_fields(row))
            self.job_limits.refuse(row)
            entry = self.recorder.registry.get(row.job_id)
            if entry is not None and row.kind == SUBMIT and row.cluster == entry.cluster:
                entry.retry_at = at
        by_job: dict[int, list[tuple[OutboxRow, CallAnswer]]] = {}
        for row, answer in pairs:
            if not (is_kept(row) and answer is None):
                by_job.setdefault(row.job_id, []).append((row, answer))

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                for row, answer in by_job[unit.job.id]:
                    write(unit, row, answer, now)

        # Urgent: an order that was carried out must not be given again only because the store failed.
        urgent = all(row.kind != SUBMIT and answer is None for row, answer in pairs)
        await self.recorder.change(by_job, work, urgent=urgent)
        for row, answer in pairs:
            if row.kind == SUBMIT:
                self._release_orders(row.job_id)
            elif answer is None and is_start(row):
                self._repeat_ends(row)
        for row, refusal, at in deferred:
            await self.recorder.repository.defer(row.token, at, refusal.message)

    def _release_orders(self, job_id: int) -> None:
        """Make ready the orders that waited for a submission's answer."""
        for row in self.recorder.outbox.of_job(job_id):
            if row.kind != SUBMIT:
                self.recorder.outbox.offer(row.token)
                self.wake((row.cluster, row.kind))

    def _repeat_ends(self, start: OutboxRow) -> None:
        """Send the end of an attempt again after its start: it may have overtaken the start."""
        for row in self.recorder.outbox.of_job(start.job_id):
            if row.kind != SUBMIT and is_end_of(row, start):
                self.recorder.outbox.offer(row.token)
                self.wake((row.cluster, row.kind))


def _fields(row: OutboxRow) -> dict[str, object]:
    """The log fields of a call."""
    return {"job": row.job_id, "cluster": row.cluster, "token": row.token}


def _log_failure(key: QueueKey, rows: Sequence[OutboxRow], error: Exception, seconds: float) -> None:
    """A line for calls that failed together, and when they are made again."""
    fields = _fields(rows[0]) if len(rows) == 1 else {"cluster": key[0]}
    words = (key[0], key[1], _name_jobs(rows), error, seconds)
    log.info("cluster %s: %s of jobs %s failed: %s; again in %.0f s", *words, extra=fields)


def _log_repeats(rows: Sequence[OutboxRow]) -> None:
    """A line for submissions that an earlier try, or an earlier daemon, may have made already."""
    if rows:
        fields = _fields(rows[0]) if len(rows) == 1 else {"cluster": rows[0].cluster}
        text = "cluster %s: submit of jobs %s is made again under their tokens"
        log.info(text, rows[0].cluster, _name_jobs(rows), extra=fields)


def _name_jobs(rows: Sequence[OutboxRow]) -> str:
    more = f" and {len(rows) - _NAMED} more" if len(rows) > _NAMED else ""
    return ", ".join(str(row.job_id) for row in rows[:_NAMED]) + more


def _accept(unit: UnitOfWork, row: OutboxRow, answer: CallAnswer, now: float) -> None:
    """The answer to a submission: a handle, a reason to wait, or the end."""
    bid = bid_of(unit, row)
    if bid is not None and answer is not None:
        answer_bid(unit, bid, row, answer, now)
    elif isinstance(answer, Accepted):
        unit.handle = stored_handle(unit, answer.handle)
        unit.native_id = answer.native_id
        unit.cursor = ""
        unit.done.append(row.token)
        if is_held_back(unit.job):
            unit.advance(events.Queued(now, "None"))
    elif isinstance(answer, Refusal) and unit.is_cancelled:
        # A refusal of any kind means that the cluster does not have it, so the cancel takes effect here.
        unit.done.append(row.token)
        unit.tried = False
    elif isinstance(answer, Refusal) and answer.transient:
        if unit.job.reason != answer.waiting_reason:
            unit.advance(events.Queued(now, answer.waiting_reason))
    elif isinstance(answer, Refusal):
        unit.done.append(row.token)
        unit.tried = False
        _refuse(unit, answer.text, now)


def _refuse(unit: UnitOfWork, message: str, now: float) -> None:
    """Handle a final refusal: go on to the next candidate; after the last one the job ends."""
    others = list_next(unit.job)
    if unit.job.bids:
        unit.promote(unit.job.bids[0], now, message, refused=True)
        return
    if others:
        unit.advance(events.Move(now, others[0].cluster, message, True, others[0].candidate))
        return
    unit.advance(events.Refused(now, word_refusals(unit.job, message)))


def _obey(unit: UnitOfWork, row: OutboxRow, answer: CallAnswer, now: float) -> None:
    """The answer to an order; a final refusal ends it, since its effect can never come."""
    if isinstance(answer, Refusal):
        event = event_from_document(dict(row.payload["event"]))
        if answer.transient and not _is_overtaken(unit.job, event):
            return
        words = (unit.job.id, type(event).__name__, answer.text)
        log.warning("job %d: the cluster refused %s: %s", *words, extra=_fields(row))
        if isinstance(event, events.Launch | events.NodeRelaunch):
            _give_up(unit, event, answer.text, now)
        else:
            unit.say(now, f"{type(event).__name__} was not carried out: {answer.text}", getattr(event, "task", ""))
    unit.done.append(row.token)


def _is_overtaken(job: Job, event: Event) -> bool:
    """Whether the event is a NodeRelaunch of an attempt that is already terminating."""
    if not isinstance(event, events.NodeRelaunch):
        return False
    found = find_attempt(job, event.task, event.attempt)
    return found is not None and found[1].stop is not None


def _give_up(unit: UnitOfWork, event: events.Launch | events.NodeRelaunch, message: str, now: float) -> None:
    """Record as ended the nodes that will not be started, since no report of their end will come."""
    found = find_attempt(unit.job, event.task, event.attempt)
    if found is None:
        return
    cause = found[1].stop.cause if found[1].stop is not None else Cause.REFUSED
    run = event.run if isinstance(event, events.NodeRelaunch) else 0
    for node in found[1].nodes:
        meant = isinstance(event, events.Launch) or node.index == event.node
        if meant and node.live and node.run == run and node.started_at is None:
            keys = (event.task, event.attempt, node.index, run)
            unit.advance(events.NodeEnded(now, *keys, cause=cause.value, detail=message))
