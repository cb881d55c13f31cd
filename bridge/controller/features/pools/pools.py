"""Keeps the pools: their workers are submitted, replaced, closed and ended as their files and their queues ask.

What is wanted is stored before it is done. Which workers there are is found out from the jobs themselves, so a daemon
that died in between goes on where it was.
"""

from __future__ import annotations

import logging
import math
import os
import time
from dataclasses import replace
from typing import Any

from overspan.adapters.abilities import DeclaredWorker, OutputPiece, WorkerKind, WorkerMessage
from overspan.bridge.controller.core.clusters import Cluster, Clusters
from overspan.bridge.controller.core.recording import RETRY_SECONDS, Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.unit_of_work import UnitOfWork
from overspan.bridge.controller.features.pools.changes import change_spec, resize
from overspan.bridge.controller.features.pools.entries import (
    PoolEntry,
    describe_pool,
    find_least_life,
    is_current,
    list_workers,
    name_worker,
    sort_waiting,
    view_pool,
)
from overspan.bridge.controller.features.pools.mailboxes import WorkerMailboxes
from overspan.bridge.controller.features.pools.patience import bar_classes, find_patience_end
from overspan.bridge.controller.features.pools.scaling import PoolPlan, plan_workers
from overspan.bridge.controller.features.pools.ways import name_way, needs_mailbox, render_worker
from overspan.bridge.controller.orders.orders import place
from overspan.bridge.controller.submission.submitter import ParsedSubmission, Submitter
from overspan.bridge.model import events
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import Conflict, Denied, InvalidRequest, NotFound, OverspanError, StoreFailed
from overspan.bridge.model.job import Job
from overspan.bridge.model.pools import WorkerOf, check_pool_name, check_size, resize_class
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.states import State
from overspan.bridge.readers.pool_file import PoolSpec, read_pool_file
from overspan.bridge.readers.submission import Submission
from overspan.bridge.runtime.zip_application import build_archive
from overspan.bridge.store.pool_records import CANCEL, REQUEUE, PoolFacts, StoredPool

log = logging.getLogger(__name__)

SETUP_SECONDS = 1200.0
"""How long a worker may take from its start until it is ready; then it is ended."""
_LOOK_SECONDS = 0.2
"""Seconds between two looks at a pool whose jobs change all the time."""
_LOOK_TIMES = 20
"""How many times as long as the last look took the next is away: one at 100,000 jobs takes a while."""
_DRAIN_SECONDS = 2.0
"""Seconds between two looks at a pool with closed workers that hold jobs."""
_AGAIN_SECONDS = 5.0
"""Seconds after which a worker that failed is replaced."""
_ASK_SECONDS = 2.0
"""Seconds after which a cluster that has not said when it will end a worker is asked again."""
_CHANGED = "the pool was changed by another request at the same time"
TASK = "worker"


class Pools:
    """All pools."""

    def __init__(
        self, recorder: Recorder, clusters: Clusters, submitter: Submitter, state_dir: str, *, shared: bool
    ) -> None:
        self._state_dir = state_dir
        self.recorder = recorder
        self.clusters = clusters
        self.submitter = submitter
        self._shared = shared
        self._pools: dict[str, PoolEntry] = {}
        self._started = False
        self._look_at: dict[str, float] = {}
        self._look_took: dict[str, float] = {}
        self._workers: dict[str, dict[int, JobEntry]] = {}
        """The workers of each pool that are not over."""
        self._mailboxes = WorkerMailboxes(clusters, self._serve, self.build_program)

    # --- start --------------------------------------------------------------------------------------------------------

    async def load(self) -> None:
        """Make each stored pool a cluster, before the jobs are loaded that are there. Raises StoreFailed."""
        for stored in await self.recorder.repository.pools.load():
            try:
                spec = self._read(decode(Submission, dict(stored.request)))
                self._pools[stored.name] = self._open(stored, spec)
            except (OverspanError, ValueError, LookupError, TypeError) as error:
                log.error("the pool %s cannot be used: %s", stored.name, error)

    def start(self) -> None:
        """Look after the pools; the jobs are loaded by now."""
        self._started = True
        for job in self.recorder.registry:
            self._note_worker(job)
        for entry in self._pools.values():
            self._declare(entry)
            self._look_soon(entry.name)

    def _open(self, stored: StoredPool, spec: PoolSpec) -> PoolEntry:
        return PoolEntry(stored, spec, self.clusters.add_pool(stored.name), self.recorder.clock())

    def _read(self, submission: Submission) -> PoolSpec:
        return read_pool_file(submission, self.clusters.kinds(), self.recorder.clock())

    # --- what people ask ----------------------------------------------------------------------------------------------

    def describe(self, name: str = "") -> list[dict[str, Any]]:
        """The pool of that name, or all, with their workers. Raises NotFound."""
        chosen = [self._find(name)] if name else [self._pools[each] for each in sorted(self._pools)]
        now, jobs = self.recorder.clock(), list(self.recorder.registry)
        told = [
            describe_pool(entry, self._list_workers(entry.name), [j for j in jobs if j.cluster == entry.name], now)
            for entry in chosen
        ]
        for worker in (each for pool in told for each in pool["workers"]):
            self._add_way(worker)
        return told

    def _add_way(self, worker: dict[str, Any]) -> None:
        """Tell how a worker reaches this daemon, and why it does not at the moment."""
        found = self.recorder.registry.get(worker["job"])
        spec = None if found is None else found.job.spec.worker
        if spec is not None:
            worker["way"] = name_way(self.clusters, worker["cluster"], mailbox=spec.mailbox)
            worker["reason"] = worker["reason"] or self._mailboxes.find_trouble(worker["job"])

    async def apply(self, name: str, submission: Submission) -> tuple[dict[str, Any], tuple[str, ...]]:
        """Make a pool of a file, or change the one of that name; how it stands, and notes."""
        self._check_daemon()
        fault = check_pool_name(name)
        if fault:
            raise InvalidRequest(f"{name!r} is no name of a pool: {fault}")
        spec = self._read(submission)
        for worker_class, worker in spec.workers.items():
            await self._check_class(name, worker_class, worker, submission)
        entry = await self._change(name, spec, submission) or await self._make(name, spec, submission)
        self._declare(entry)
        await self._look(name)
        return self.describe(name)[0], spec.notes

    async def _check_class(self, pool: str, worker_class: str, worker: JobSpec, submission: Submission) -> None:
        """Refuse workers that could never run, or not reach this daemon; the words name their class."""
        try:
            needs_mailbox(self.clusters, self._list_clusters(worker))
            await self.submitter.try_worker(self._make_worker(pool, 1, worker_class, worker), submission)
        except OverspanError as error:
            if worker_class:
                error.message = f"the class {worker_class}: {error.message}"
            raise

    async def _change(self, name: str, spec: PoolSpec, submission: Submission) -> PoolEntry | None:
        """Change the pool of that name; None where there is none, be it that its end was waited for."""
        entry = self._pools.get(name)
        if entry is None:
            return None
        async with entry.lock:
            if self._pools.get(name) is not entry:
                return None
            facts = change_spec(entry.facts, entry.spec, spec)
            same = facts.generation == entry.facts.generation
            await self._keep(entry, facts, encode(replace(submission, token="")))
            entry.spec = spec
            entry.longest = entry.longest if same else None
            entry.barred.clear()
        return entry

    async def _make(self, name: str, spec: PoolSpec, submission: Submission) -> PoolEntry:
        """Make a pool. Raises Conflict where another request has made it meanwhile."""
        facts = resize(PoolFacts(spec.size, self.recorder.clock()), spec.size)
        stored = StoredPool(name, 1, submission.user, facts, encode(replace(submission, token="")))
        entry = self._open(stored, spec)
        if not await self.recorder.repository.pools.keep(stored):
            await self.clusters.remove_pool(name)
            raise Conflict(_CHANGED, remedy="try again")
        self._pools[name] = entry
        return entry

    def _list_clusters(self, worker: JobSpec) -> list[Cluster]:
        """The clusters that may have a worker."""
        names = dict.fromkeys(candidate.cluster for candidate in worker.places) or {"": None}
        return [self.clusters.get(name) for name in names]

    async def resize(self, name: str, low: int, high: int, worker_class: str = "") -> dict[str, Any]:
        """Change the number of workers, or that of a class; those that there are stay."""
        entry = self._find(name)
        if high < low:
            raise InvalidRequest(f"the highest number of workers, {high}, is below the lowest, {low}")
        async with entry.lock:
            size = entry.facts.size
            known = [each.name for each in size.classes]
            if worker_class and worker_class not in known:
                raise NotFound(
                    f"the pool {name} has no class {worker_class!r}",
                    remedy=f"its classes: {', '.join(known) or 'none'}",
                )
            size = resize_class(size, worker_class, low, high) if worker_class else replace(size, low=low, high=high)
            fault = check_size(size)
            if fault:
                raise InvalidRequest(fault, remedy=f"`span pool show {name}` shows the numbers of its classes")
            await self._keep(entry, resize(entry.facts, size))
            entry.barred.clear()
        await self._look(name)
        return self.describe(name)[0]

    async def drain(self, name: str, workers: list[int]) -> dict[str, Any]:
        """Give workers no more jobs, and end each when it holds none; others take their places. Without any: all."""
        entry = self._find(name)
        known = [each.job.id for each in self._list_workers(name)]
        for worker in workers:
            if worker not in known:
                raise NotFound(
                    f"the pool {name} has no worker of job {worker}", remedy=f"its workers: {known or 'none'}"
                )
        async with entry.lock:
            closed = tuple(dict.fromkeys((*entry.facts.closed, *(workers or known))))
            await self._keep(entry, replace(entry.facts, closed=closed))
        await self._look(name)
        return self.describe(name)[0]

    async def delete(self, name: str, ending: str) -> int:
        """End a pool and its workers; `ending` says what becomes of its jobs, of which there are so many."""
        entry = self._find(name)
        jobs = [each.job.id for each in self.recorder.registry if each.cluster == name and not each.job.over]
        if jobs and ending not in (CANCEL, REQUEUE):
            raise Conflict(
                f"the pool {name} has {len(jobs)} jobs",
                remedy="--cancel ends them; --requeue has them wait for a pool of that name",
            )
        async with entry.lock:
            await self._keep(entry, replace(entry.facts, ending=ending or CANCEL))
        await self._end_jobs(jobs, name, ending)
        await self._look(name)
        return len(jobs)

    async def _end_jobs(self, jobs: list[int], pool: str, ending: str) -> None:
        """Cancel jobs of a pool, or put them back into the queue. Raises StoreFailed."""
        now = self.recorder.clock()

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                _end_job(unit, pool, ending, now)

        if jobs:
            await self.recorder.change(jobs, work, urgent=True)

    async def exchange(self, message: WorkerMessage) -> dict[str, Any]:
        """Pass on what a worker says, and what it is owed. Raises Denied for a job that is no worker."""
        entry = self._find_of_worker(message.job)
        if entry.ready.get(message.job) != message.word:
            # Until it is known how long this process lives, it is given what fits the least that it may.
            entry.ready[message.job] = message.word
            entry.ends.pop(message.job, None)
            self._ask_end(entry, message)
            self._declare(entry)
            await self._note_success(entry, message.job)
            self._look_soon(entry.name)
        return await entry.adapter.exchange(message)

    async def _note_success(self, entry: PoolEntry, job: int) -> None:
        """A worker is ready: failures of its class before count no more."""
        found = self.recorder.registry.get(job)
        worker = None if found is None else found.job.spec.worker
        if worker is None or worker.worker_class not in entry.facts.classes:
            return
        entry.barred.pop(worker.worker_class, None)
        if entry.facts.of(worker.worker_class).failures:
            async with entry.lock:
                cleared = replace(entry.facts.of(worker.worker_class), failures=0, message="")
                await self._keep(entry, entry.facts.with_class(worker.worker_class, cleared))

    async def _note_late(self, entry: PoolEntry, workers: list[Job]) -> None:
        """Count workers that were not ready in time as failures."""
        for each in workers:
            text = f"worker {each.id} was not ready after {SETUP_SECONDS:.0f} s: `span pool logs {entry.name}` has more"
            await self._note_failures(entry, _class_of(each), 1, text)

    async def _note_failures(self, entry: PoolEntry, worker_class: str, count: int, text: str) -> None:
        """Count failures of a class that the pool still has, with its lock held. Raises StoreFailed, Conflict."""
        if worker_class in entry.facts.classes:
            facts = entry.facts.of(worker_class)
            failed = replace(facts, failures=facts.failures + count, message=text)
            await self._keep(entry, entry.facts.with_class(worker_class, failed))

    def _ask_end(self, entry: PoolEntry, message: WorkerMessage) -> None:
        """Find out when its cluster will end a worker; asked again until it says so, or the worker is another."""
        found = self.recorder.registry.get(message.job)
        if found is None or found.job.over or entry.ready.get(message.job) != message.word:
            return
        clusters = [self.clusters.find(name) for name in found.places()]
        if all(cluster is not None and cluster.traits.find_end is None for cluster in clusters):
            entry.ends[message.job] = math.inf
            return
        self.recorder.spawn(self._learn_end(entry, message), f"the end of worker {message.job}")

    async def _learn_end(self, entry: PoolEntry, message: WorkerMessage) -> None:
        end = await self._find_end(message.job)
        if entry.ready.get(message.job) != message.word:
            return
        if end is None:
            at = self.recorder.clock() + _ASK_SECONDS
            self.recorder.timers.set(f"end:{message.job}", at, lambda: self._ask_end(entry, message))
            return
        entry.ends[message.job] = end
        found = self.recorder.registry.get(message.job)
        if found is not None and end != math.inf:
            left = end - (found.job.granted_at or self.recorder.clock())
            # Limits of clusters are whole minutes, and its start may be known a moment late.
            entry.longest = 60 * math.ceil(left / 60)
        self._declare(entry)
        self._look_soon(entry.name)

    async def _find_end(self, worker: int) -> float | None:
        """When its cluster will end a worker, infinity for never; None while that is not known."""
        found = self.recorder.registry.get(worker)
        cluster = None if found is None else self.clusters.find(found.cluster)
        if found is None or cluster is None or not found.watched:
            return None
        if cluster.traits.find_end is None:
            return math.inf
        try:
            return await cluster.traits.find_end(found.handle)
        except OverspanError as error:
            log.warning("pool: when worker %d ends is not known: %s; trying again", worker, error)
            return None

    async def keep_output(self, piece: OutputPiece) -> bool:
        """Pass on what a worker's launch has printed; False where it is not the worker's. Raises Denied."""
        return await self._find_of_worker(piece.job).adapter.keep_output(piece)

    async def _serve(self, message: WorkerMessage | OutputPiece) -> dict[str, Any]:
        """Answer what a worker has left in its mailbox. Raises Denied."""
        if isinstance(message, OutputPiece):
            return {"taken": await self.keep_output(message)}
        return await self.exchange(message)

    def _find_of_worker(self, job: int) -> PoolEntry:
        found = self.recorder.registry.get(job)
        worker = None if found is None or found.job.over else found.job.spec.worker
        entry = None if worker is None else self._pools.get(worker.pool)
        if entry is None:
            raise Denied(f"job {job} is no worker of a pool")
        return entry

    def build_program(self) -> bytes:
        """The application that a worker is. Blocking; raises OSError."""
        with open(build_archive(os.path.join(self._state_dir, "cache")), "rb") as file:
            return file.read()

    def _find(self, name: str) -> PoolEntry:
        entry = self._pools.get(name)
        if entry is None:
            listed = ", ".join(sorted(self._pools)) or "none"
            raise NotFound(f"there is no pool {name!r}", remedy=f"the pools: {listed}")
        return entry

    def _check_daemon(self) -> None:
        if self._shared:
            raise InvalidRequest(
                "the shared daemon keeps no pools in this version", remedy="put SPAN_SERVER= before it"
            )

    async def _keep(self, entry: PoolEntry, facts: PoolFacts, request: Any = None) -> None:
        """Store how a pool is wanted. Raises StoreFailed, Conflict."""
        stored = entry.stored
        changed = replace(stored, version=stored.version + 1, facts=facts, request=request or stored.request)
        if not await self.recorder.repository.pools.keep(changed):
            raise Conflict(_CHANGED, remedy="try again")
        entry.stored = changed

    def end_waits(self) -> None:
        """Answer all workers that wait for news."""
        for entry in self._pools.values():
            entry.adapter.end_waits()

    async def close(self) -> None:
        """Visit no mailbox any more."""
        await self._mailboxes.close()

    # --- looking after them -------------------------------------------------------------------------------------------

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """A job has changed: a worker, or one that is in a pool."""
        worker = entry.job.spec.worker
        if worker is not None:
            self._note_worker(entry)
        if not self._started or (worker is None and entry.cluster not in self._pools):
            return
        if worker is None:
            self._look_soon(entry.cluster, max(_LOOK_SECONDS, _LOOK_TIMES * self._look_took.get(entry.cluster, 0.0)))
        elif worker.pool in self._pools:
            pool = self._pools[worker.pool]
            if entry.job.over and (before is None or not before.over):
                self._declare(pool)
                self.recorder.spawn(self._note_end(pool, entry.job), f"the end of a worker of {worker.pool}")
            self._look_soon(worker.pool)

    def _note_worker(self, entry: JobEntry) -> None:
        worker = entry.job.spec.worker
        if worker is None:
            return
        self._mailboxes.follow(entry)
        workers = self._workers.setdefault(worker.pool, {})
        if entry.job.over:
            workers.pop(entry.job.id, None)
        else:
            workers[entry.job.id] = entry

    def _list_workers(self, pool: str) -> list[JobEntry]:
        return list_workers(self._workers.get(pool, {}).values(), pool)

    async def _note_end(self, pool: PoolEntry, job: Job) -> None:
        """Count a worker that ended before it was ready, by itself."""
        pool.idle_since.pop(job.id, None)
        pool.ends.pop(job.id, None)
        if job.id in pool.ready or job.state is State.CANCELLED or job.id in pool.facts.closed:
            pool.ready.pop(job.id, None)
            return
        text = f"worker {job.id} ended as {job.state.value} before it was ready: `span pool logs {pool.name}` has more"
        async with pool.lock:
            await self._note_failures(pool, _class_of(job), 1, text)
        self._look_soon(pool.name, _AGAIN_SECONDS)

    def _look_soon(self, name: str, seconds: float = _LOOK_SECONDS) -> None:
        at = self.recorder.clock() + seconds
        if name in self._look_at and self._look_at[name] <= at:
            return
        self._look_at[name] = at
        self.recorder.timers.set(f"pool:{name}", at, lambda: self.recorder.spawn(self._look(name), f"pool {name}"))

    async def _look(self, name: str) -> None:
        """Start, close and end workers as the pool needs it now."""
        self._look_at.pop(name, None)
        entry = self._pools.get(name)
        if entry is None:
            return
        try:
            async with entry.lock:
                wake_at = await self._carry_out(entry)
        except (StoreFailed, Conflict) as error:
            log.warning("pool %s: %s; trying again", name, error)
            wake_at = self.recorder.clock() + RETRY_SECONDS
        except Exception:
            # A fault of ours must not stop the pool: it is looked at again.
            log.exception("pool %s: trying again", name)
            wake_at = self.recorder.clock() + RETRY_SECONDS
        if wake_at is not None:
            self._look_soon(name, max(_LOOK_SECONDS, wake_at - self.recorder.clock()))

    async def _carry_out(self, entry: PoolEntry) -> float | None:
        now, jobs, begun = self.recorder.clock(), list(self.recorder.registry), time.thread_time()
        workers = self._list_workers(entry.name)
        if entry.facts.ending and not workers and not any(j.cluster == entry.name and not j.job.over for j in jobs):
            await self._remove(entry)
            return None
        left_at = await self._cancel_left(entry, jobs) if entry.facts.ending == CANCEL else None
        waiting = sort_waiting(entry, jobs)
        bar_classes(entry, workers, self.clusters.find, now)
        view = view_pool(entry, workers, waiting, now)
        self._look_took[entry.name] = time.thread_time() - begun
        plan = plan_workers(view, now)
        await self._store_plan(entry, plan)
        self._declare(entry)
        # Closed by now, so none of them was given a job since.
        busy = {each["job"] for each in entry.adapter.list_workers() if each["jobs"]}
        late, late_at = self._list_late(entry, workers, now)
        await self._end([job for job in plan.end if job not in busy] + late)
        if late:
            await self._note_late(entry, [each.job for each in workers if each.job.id in late])
            return now + _AGAIN_SECONDS
        refused = [name for name, count in plan.start.items() if not await self._start_workers(entry, name, count)]
        if plan.start:
            self._declare(entry)
        # The end of a job is stored a little before, or after, its worker has said that all of it is over.
        drains_at = now + _DRAIN_SECONDS if set(plan.closed) & busy else None
        again_at = now + _AGAIN_SECONDS if refused else None
        moments = (plan.wake_at, late_at, drains_at, left_at, again_at, find_patience_end(entry, workers, now))
        return min((at for at in moments if at is not None), default=None)

    async def _cancel_left(self, entry: PoolEntry, jobs: list[JobEntry]) -> float:
        """Cancel the jobs of a pool that ends: an earlier daemon may have died before that, or one has come since."""
        left = [each.job.id for each in jobs if each.cluster == entry.name and not each.job.over]
        await self._end_jobs(left, entry.name, CANCEL)
        return self.recorder.clock() + _DRAIN_SECONDS

    async def _store_plan(self, entry: PoolEntry, plan: PoolPlan) -> None:
        facts = entry.facts
        classes = {name: replace(facts.of(name), wanted=number) for name, number in plan.wanted.items()}
        if (classes, set(plan.closed)) != (facts.classes, set(facts.closed)):
            await self._keep(entry, replace(facts, classes=classes, closed=plan.closed))

    async def _remove(self, entry: PoolEntry) -> None:
        await self.recorder.repository.pools.remove(entry.name)
        del self._pools[entry.name]
        self.recorder.timers.drop(f"pool:{entry.name}")
        await self.clusters.remove_pool(entry.name)

    def _list_late(self, entry: PoolEntry, workers: list[JobEntry], now: float) -> tuple[list[int], float | None]:
        """The workers that are not ready although they have run for long, and when the next one will be late."""
        running = [each.job for each in workers if each.job.started_at is not None and each.job.id not in entry.ready]
        due = {job.id: max(job.started_at or now, entry.opened_at) + SETUP_SECONDS for job in running}
        late = [job for job, at in due.items() if at <= now]
        return late, min((at for job, at in due.items() if job not in late), default=None)

    def _declare(self, entry: PoolEntry) -> None:
        """Tell the adapter which workers there are."""
        facts, found = entry.facts, self._list_workers(entry.name)
        declared = []
        for each in found:
            worker = each.job.spec.worker
            old = worker is None or not is_current(facts, worker)
            closed = old or each.job.id in facts.closed or each.job.ending is not None
            name = name_worker(entry.name, each.job.id)
            life = find_least_life(each.job, entry.ends.get(each.job.id))
            declared.append(DeclaredWorker(each.job.id, name, each.job.spec.tasks[0], closed, life))
        entry.adapter.declare(declared, _list_kinds(entry))

    async def _start_workers(self, entry: PoolEntry, worker_class: str, count: int) -> bool:
        """Submit workers of a class; False where that has to wait, or was refused."""
        worker = entry.spec.workers[worker_class]
        submission = replace(decode(Submission, dict(entry.stored.request)), text=worker.origin.text, token="")
        try:
            spec = self._make_worker(entry.name, entry.facts.generation, worker_class, worker)
            for _ in range(count):
                await self.submitter.take(ParsedSubmission(spec), submission)
            return True
        except StoreFailed:
            raise
        except OverspanError as error:
            log.warning("pool %s: a worker was refused: %s", entry.name, error)
            await self._note_failures(entry, worker_class, 1, error.message)
            return False

    def _make_worker(self, name: str, generation: int, worker_class: str, spec: JobSpec) -> JobSpec:
        """The job that a worker is: the set-up of the pool's file, then the program that takes jobs."""
        places = self._list_clusters(spec)
        mailbox = needs_mailbox(self.clusters, places)
        task = replace(spec.tasks[0], name=TASK, run=render_worker(places, mailbox=mailbox))
        worker = WorkerOf(name, generation, worker_class, mailbox)
        return replace(spec, name=f"{name}-worker", tasks=(task,), worker=worker)

    async def _end(self, jobs: list[int]) -> None:
        """End workers."""
        if not jobs:
            return
        now = self.recorder.clock()

        def work(units: list[UnitOfWork]) -> None:
            for unit in units:
                try:
                    place(unit, events.Cancel(now, by="pool"), now)
                except Conflict:
                    # It ends already.
                    continue

        await self.recorder.change(jobs, work, urgent=True)


def _list_kinds(entry: PoolEntry) -> list[WorkerKind]:
    """What workers can be. The limit of the only place is the one that its last worker was found to have."""
    kinds = [
        WorkerKind(task, worker_class)
        for worker_class, spec in entry.spec.workers.items()
        for task in ([spec.take(candidate).tasks[0] for candidate in spec.places] or [spec.tasks[0]])
    ]
    if len(kinds) == 1 and entry.longest is not None:
        only = kinds[0].task
        kinds = [kinds[0]._replace(task=replace(only, time=min(only.time or entry.longest, entry.longest)))]
    return kinds


def _class_of(worker: Job) -> str:
    return "" if worker.spec.worker is None else worker.spec.worker.worker_class


def _end_job(unit: UnitOfWork, pool: str, ending: str, now: float) -> None:
    """Cancel a job of a pool that is deleted, or put it back into the queue."""
    try:
        if ending == CANCEL:
            place(unit, events.Cancel(now, by=f"the end of pool {pool}"), now)
        elif unit.job.granted_at is not None:
            place(unit, events.Requeue(now, by=f"the end of pool {pool}"), now)
    except Conflict:
        # It has ended, or waits.
        return
