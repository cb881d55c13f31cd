"""The adapter of a pool: one queue, and workers that take launches from it.

What waits is in memory, and comes from the store when the pool is opened; what a worker holds is told by the cursors
that the store keeps. So the adapter has no files of its own but the output of jobs.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from overspan.adapters.abilities import DeclaredWorker, OutputPiece, WorkerKind, WorkerMessage
from overspan.adapters.bookings import Bookings
from overspan.adapters.contract import (
    NOT_HERE,
    Accepted,
    ClusterConfig,
    Launch,
    LogPart,
    LogRequest,
    Node,
    Observation,
    Order,
    Refusal,
    Report,
    SomeUnanswered,
)
from overspan.adapters.cursors import Cursors
from overspan.adapters.local.files.ended_runs import forget_runs
from overspan.adapters.local.files.launch_files import LaunchFiles, find_last_job, parse_handle
from overspan.adapters.local.files.logs import read_log
from overspan.adapters.pool.dispatch import STARVE_AFTER, PoolQueue, assign, find_outdated
from overspan.adapters.pool.launches import (
    NO_LEASE,
    LaunchIndex,
    PoolLaunch,
    WorkerLease,
    make_launch,
    parse_cursor,
    project,
)
from overspan.adapters.pool.outputs import keep_piece, write_mark
from overspan.adapters.pool.planning import render_plan
from overspan.adapters.pool.requests import (
    WorkerKinds,
    change_time,
    draw_addresses,
    find_job_seconds,
    find_refusal,
    measure_worker,
    read_request,
    restore_booking,
)
from overspan.adapters.pool.workers import ConnectedWorker, find_owed, job_of
from overspan.adapters.traits import FindKnown, Traits
from overspan.adapters.waiting_orders import interpret_order
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.documents import encode, make_encoder
from overspan.bridge.model.errors import Denied, InvalidRequest
from overspan.bridge.model.events import Event, LaunchLost, SetTime
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec

ANSWER_SECONDS = 1.0
"""How long orders wait for the workers that are to have them; those that are not in contact are asked again later."""
DROP_SECONDS = 0.25
"""How long a worker may keep what is only to be tidied away there."""
_URGENT = ("leases", "orders", "places")
_encode_facts = make_encoder(Job, without=("spec",))


class PoolCluster:
    """The queue of a pool, and its workers in contact."""

    def __init__(self, config: ClusterConfig) -> None:
        if not config.state:
            raise InvalidRequest(
                f"clusters.{config.name}: a pool is made by `span pool apply`, not by the configuration"
            )
        self.name = config.name
        self._config = config
        self._root = os.path.abspath(config.state)
        self.traits = Traits(
            warm_nodes=True,
            stateless=True,
            follows_cursors=True,
            find_last_number=lambda: find_last_job(self._root),
            forget=self._forget,
        )
        self._life = uuid.uuid4().hex[:8]
        self._launches: dict[str, PoolLaunch] = {}
        self._unstored: dict[str, str] = {}
        """The tokens of launches whose acceptance the store may not have."""
        self._leases = LaunchIndex()
        self._queue = PoolQueue()
        self._declared: dict[int, DeclaredWorker] = {}
        self._kinds = WorkerKinds()
        self._workers: dict[str, ConnectedWorker] = {}
        self._offered: frozenset[frozenset[str]] = frozenset()
        """What the versions of workers that may take launches can do."""
        self._replaced: set[str] = set()
        """Processes of workers whose jobs have started others since: what they say late counts no more."""
        self._followed: dict[str, str] = {}
        """The cursors of the last question, where these are none that tell what has changed."""
        self._dirty: set[str] = set()
        self._fresh = asyncio.Event()
        self._obeyed = asyncio.Event()
        self._opened = self._closed = False
        self._mark = ""
        self._spec: JobSpec | None = None
        self._spec_document: dict[str, Any] = {}
        """The spec of the launch that was sent to a worker last, as JSON data."""

    # --- the contract -------------------------------------------------------------------------------------------------

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """Put each launch in the queue; one that has a worker at once is told with its lease."""
        return self.take_in(launches)

    def take_in(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        """As `submit`: a lease goes to its worker when the cursor that tells it is stored."""
        self._open()
        answers = [self._take(launch) for launch in launches]
        self._schedule()
        return [self._tell_lease(answer) if isinstance(answer, Accepted) else answer for answer in answers]

    def give_up(self, handle: str) -> None:
        """Forget a launch whose job could not be stored; a worker that was meant for it takes the next one."""
        launch = self._launches.get(handle)
        if launch is not None:
            self._drop(launch)
            self._schedule()

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """What has happened to the launches in `since`, behind their cursors."""
        self._open()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            self._fresh.clear()
            reports = self._collect(since)
            left = deadline - loop.time()
            if reports or left <= 0:
                return Observation(tuple(reports), time.time())
            try:
                async with asyncio.timeout(left):
                    await self._fresh.wait()
            except TimeoutError:
                continue

    async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
        """Carry out orders on launches that wait, and pass the others to the workers; done is what they have."""
        self._open()
        passed: list[tuple[Order, PoolLaunch]] = []
        for order in orders:
            launch = self._launches.get(order.handle)
            if launch is None:
                continue
            if launch.lease.told_grant:
                launch.add_order(order.token, order.event)
                self._wake_worker(launch.lease.worker)
                passed.append((order, launch))
            else:
                self._note_waiting(launch, order)
        self._schedule()
        unheard = await self._await_workers(passed)
        if unheard:
            raise SomeUnanswered({order.token: None for order in orders if order.token not in unheard})
        return [None for _ in orders]

    async def logs(self, request: LogRequest) -> LogPart:
        """Bytes of a log, from the file that the worker named."""
        return await asyncio.to_thread(read_log, parse_handle(self._root, request.handle), request)

    async def nodes(self) -> list[Node]:
        """The workers, each as a node."""
        self._open()
        now = time.time()
        return [worker.as_node(self.name, now) for worker in self._workers.values()]

    async def close(self) -> None:
        """Nothing is open but the waits of workers."""
        self.end_waits()

    def end_waits(self) -> None:
        """Let waiting workers go; they come again to the next daemon."""
        self._closed = True
        for worker in self._workers.values():
            worker.news.set()

    async def admit(self, job: Job) -> Refusal | None:
        """The refusal of a job that no worker of the pool can ever run."""
        refusal = find_refusal(job, self._kinds.sizes)
        return Refusal("", refusal, remedy=f"`span pool show {self.name}` shows its workers") if refusal else None

    def plan(self, job: Job) -> str:
        """What the job asks of a worker, which workers fit it, and what they would run."""
        now = time.time()
        workers = {worker.name: worker.offer() for worker in self._list_open(now)}
        return render_plan(self._make_launch(job), job, self._kinds.list_sizes(), workers, now)

    async def release(self, installation: str, handles: Collection[str], tokens: Collection[str]) -> None:
        """Forget launches whose ends are stored; their workers are told to forget them too."""
        self._open()
        for handle, launch in list(self._launches.items()):
            if handle not in handles and self._unstored.get(handle) not in tokens:
                self._drop(launch)
        self._schedule()

    # --- workers ------------------------------------------------------------------------------------------------------

    def declare(self, workers: Sequence[DeclaredWorker], kinds: Sequence[WorkerKind]) -> None:
        """Say which jobs are workers now, and what workers there can be. One that is gone has lost what it held."""
        self._open()
        self._kinds.declare(kinds)
        self._declared = {worker.job: worker for worker in workers}
        self._replaced = {name for name in self._replaced if job_of(name) in self._declared}
        for worker in list(self._workers.values()):
            declared = self._declared.get(worker.declared.job)
            if declared is None:
                del self._workers[worker.id]
                worker.news.set()
            else:
                if declared.closed != worker.declared.closed:
                    worker.news.set()
                worker.declared = declared
        for name in self._leases.list_workers():
            if job_of(name) not in self._declared:
                self._lose_all(name, "is gone")
        self._schedule()

    async def exchange(self, message: WorkerMessage) -> dict[str, Any]:
        """Take in what a worker says, and answer what it is owed. Raises Denied for a worker that is none any more."""
        self._open()
        worker = self._meet(message)
        for handle, (offset, text) in message.journals.items():
            self._take_journal(worker, handle, offset, text.encode())
        begun = asyncio.get_running_loop().time()
        deadline = begun + message.wait
        while True:
            worker.news.clear()
            worker.heard_at = time.time()
            answer = self._answer(worker, message)
            if answer["drop"]:
                deadline = min(deadline, begun + DROP_SECONDS)
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0 or self._closed or any(answer[part] for part in _URGENT):
                return answer
            try:
                async with asyncio.timeout(left):
                    await worker.news.wait()
            except TimeoutError:
                continue
            if worker.id not in self._workers:
                raise _dismiss(self.name)

    async def keep_output(self, piece: OutputPiece) -> bool:
        """Keep a piece of what a worker's launch has printed; False where the launch is not the worker's."""
        name, launch = f"{piece.job}.{piece.word}", self._launches.get(piece.handle)
        if piece.job not in self._declared or name in self._replaced:
            raise _dismiss(self.name)
        if launch is None or launch.lease.worker != name or launch.lease.lost is not None:
            return False
        await asyncio.to_thread(keep_piece, parse_handle(self._root, piece.handle), piece)
        return True

    def list_workers(self) -> list[dict[str, Any]]:
        """The workers in contact: job, name, what they hold and have, and when they were heard of last."""
        now, needed = time.time(), self._queue.features
        since = find_outdated(self._queue, {worker.id: worker.offer() for worker in self._list_open(now)})
        due = {name: at + STARVE_AFTER for name, at in since.items()}
        return [worker.describe(now, needed, due.get(worker.id)) for worker in self._workers.values()]

    def list_fitting(self, job: Job) -> list[WorkerKind]:
        """The kinds of workers that could run a job."""
        return self._kinds.list_fitting(job)

    def find_seconds(self, job: Job) -> int | None:
        """How many seconds a launch of the job may take; None without a limit."""
        return find_job_seconds(job)

    def _meet(self, message: WorkerMessage) -> ConnectedWorker:
        declared = self._declared.get(message.job)
        name = f"{message.job}.{message.word}"
        if declared is None or name in self._replaced:
            raise _dismiss(self.name)
        worker = self._workers.get(name)
        if worker is None:
            for earlier in [each for each in self._workers.values() if each.declared.job == message.job]:
                # The job has started its worker anew, so the process before is gone.
                del self._workers[earlier.id]
                self._replaced.add(earlier.id)
            room = Bookings(measure_worker(declared.task))
            worker = ConnectedWorker(name, declared, room, heard_at=time.time(), features=message.features)
            self._workers[name] = worker
            for launch in self._leases.of(name):
                self._restore(launch, worker)
            for other in self._leases.list_workers():
                if other != name and job_of(other) == message.job:
                    self._lose_all(other, "was started again")
            self._schedule()
        worker.near = message.mark != "" and message.mark == self._mark
        return worker

    def _restore(self, launch: PoolLaunch, worker: ConnectedWorker) -> None:
        """Book what a launch of an earlier daemon's lease holds."""
        launch.lease.node = worker.name
        if launch.lease.booking is None:
            found = self._config.find_launch(launch.handle)
            places = found.job.placements if found is not None else ()
            launch.lease.booking = restore_booking(launch.request, launch.task, places, worker.room.capacity)
        if launch.handle not in worker.room:
            worker.room.restore(launch.handle, launch.lease.booking)

    def _answer(self, worker: ConnectedWorker, message: WorkerMessage) -> dict[str, Any]:
        leases, orders, places, drop = find_owed(self._leases.of(worker.id), message.held)
        self._obeyed.set()
        if message.journals:
            # The question that waits for news gets them.
            leases = []
        if message.wait:
            # It was asked before what has been told since.
            places = {}
        plans = {launch.handle: self._make_plan(launch) for launch in leases}
        return {
            "root": self._root,
            "leases": {handle: plan for handle, plan in plans.items() if plan},
            "orders": orders,
            "places": places,
            "drop": drop,
        }

    def _make_plan(self, launch: PoolLaunch) -> dict[str, Any]:
        """The plan of a launch, with the facts that the store has of it; empty where it is over meanwhile."""
        found = self._config.find_launch(launch.handle)
        if found is None or found.job.granted_at is None:
            return {}
        if found.job.spec is not self._spec:
            # The elements of an array, and what a loop submits, have one spec.
            self._spec, self._spec_document = found.job.spec, encode(found.job.spec)
        return {
            "token": found.token,
            "cluster": self.name,
            "job": {**_encode_facts(found.job), "spec": self._spec_document},
            "environment": dict(found.environment),
        }

    def _take_journal(self, worker: ConnectedWorker, handle: str, offset: int, data: bytes) -> None:
        launch = self._launches.get(handle)
        if launch is None or launch.lease.worker != worker.id or launch.lease.lost is not None:
            # Of a lease that it has lost: the answer tells it to drop the launch.
            return
        if launch.take_journal(offset, data):
            self._mark_dirty(launch)
        if launch.ended and worker.room.release(handle):
            self._schedule()

    def _lose_all(self, worker: str, what: str) -> None:
        for launch in self._leases.of(worker):
            if launch.lease.lost is None:
                self._lose(launch, f"the worker {launch.lease.node} {what}")

    def _lose(self, launch: PoolLaunch, text: str) -> None:
        """The worker is gone. A lease that was never told costs nothing."""
        if not launch.lease.told_grant:
            self._take_back(launch)
            self._enqueue(launch)
            return
        launch.lease.lost = LaunchLost(time.time(), launch.number, Cause.NODE.value, text)
        self._mark_dirty(launch)

    # --- the queue ----------------------------------------------------------------------------------------------------

    def _open(self) -> None:
        """Take over what an earlier daemon has left, once: launches that wait, and leases by their cursors."""
        if self._opened:
            return
        # Where there is no room for these, it is opened with the next call.
        os.makedirs(f"{self._root}/runs", 0o700, exist_ok=True)
        self._mark = write_mark(self._root)
        self._opened = True
        cursors = self._config.list_cursors()
        for handle, cursor in cursors.items():
            found = self._config.find_launch(handle)
            if found is None:
                continue
            launch = self._make_launch(found.job)
            lease = parse_cursor(cursor)
            if lease is not None:
                node = found.job.placements[0].node if found.job.placements else lease.worker
                launch.lease = WorkerLease(lease.worker, node, base=lease.offset, leased=True, told_grant=True)
            self._enter(launch)

    def _make_launch(self, job: Job) -> PoolLaunch:
        return make_launch(job, self._queue.share(read_request(job)), time.time())

    def _take(self, launch: Launch) -> Accepted | Refusal:
        handle = f"{launch.job.id}.{launch.job.launch}"
        if handle not in self._launches:
            if not launch.wanted:
                return Refusal(launch.token, NOT_HERE)
            refusal = find_refusal(launch.job, self._kinds.sizes)
            if refusal:
                return Refusal(launch.token, refusal)
            self._enter(self._make_launch(launch.job))
            self._unstored[handle] = launch.token
        # The one object, which many places keep.
        handle = self._launches[handle].handle
        return Accepted(launch.token, handle, handle)

    def _tell_lease(self, answer: Accepted) -> Accepted:
        """The answer with the lease that the launch was given meanwhile."""
        launch = self._launches[answer.handle]
        if not launch.lease.worker or launch.lease.told_grant:
            return answer
        events, cursor = project(launch, "", self._life)
        launch.lease.told_grant = True
        return replace(answer, report=Report(launch.handle, tuple(events), cursor, native_id=launch.lease.node))

    def _enter(self, launch: PoolLaunch) -> None:
        self._launches[launch.handle] = launch
        self._leases.add(launch)
        if launch.waits:
            self._enqueue(launch)
        self._mark_dirty(launch)

    def _drop(self, launch: PoolLaunch) -> None:
        self._queue.remove(launch)
        self._launches.pop(launch.handle, None)
        self._unstored.pop(launch.handle, None)
        self._leases.remove(launch)
        self._dirty.discard(launch.handle)
        self._followed.pop(launch.handle, None)
        worker = self._workers.get(launch.lease.worker)
        if worker is not None:
            worker.room.release(launch.handle)
            worker.news.set()
        elif launch.lease.worker:
            # A worker that is gone has left the plan, which has secrets.
            _remove_left(parse_handle(self._root, launch.handle))

    def _note_waiting(self, launch: PoolLaunch, order: Order) -> None:
        """Carry out an order on a launch that waits, or whose lease was not told yet."""
        event: Event | None = interpret_order(order.event, launch.number)
        if event is None or order.token in launch.tokens:
            return
        launch.note_token(order.token, 0)
        self._take_back(launch)
        # Its place in the queue may change.
        self._queue.remove(launch)
        launch.note(event)
        if isinstance(event, SetTime):
            found = self._config.find_launch(launch.handle)
            if found is not None:
                seconds = find_job_seconds(change_time(found.job, event))
                launch.request = launch.request._replace(seconds=seconds)
        if launch.waits:
            self._enqueue(launch)
        self._mark_dirty(launch)

    def _enqueue(self, launch: PoolLaunch) -> None:
        self._queue.add(launch)
        self._tell_reason(launch)

    def _take_back(self, launch: PoolLaunch) -> None:
        """Take back a lease that was never told."""
        worker = self._workers.get(launch.lease.worker)
        if worker is not None:
            worker.room.release(launch.handle)
        self._leases.remove(launch)
        launch.lease = NO_LEASE

    def _schedule(self) -> None:
        """Give leases to workers with room."""
        now = time.time()
        rooms = {worker.id: worker.offer() for worker in self._list_open(now)}
        for one in assign(self._queue, rooms, now):
            launch, worker = self._launches[one.handle], self._workers[one.worker]
            self._queue.remove(launch)
            worker.room.restore(one.handle, one.booking)
            addresses = draw_addresses(self._root, launch.job, one.booking) if launch.request.groups else ()
            launch.lease = WorkerLease(worker.id, worker.name, one.booking, addresses, now)
            self._leases.add(launch)
            self._mark_dirty(launch)
        offered = frozenset(room.features for room in rooms.values())
        if offered != self._offered:
            self._offered = offered
            for waiting in self._queue:
                self._tell_reason(self._launches[waiting.handle])

    def _list_open(self, now: float) -> list[ConnectedWorker]:
        """The workers that may be given launches."""
        # A plan is made in a thread: what comes meanwhile is not in the copy.
        return [each for each in list(self._workers.values()) if not each.declared.closed and not each.is_silent(now)]

    def _tell_reason(self, launch: PoolLaunch) -> None:
        """Tell of a launch that waits whether no worker's version can run it, where that has changed."""
        if launch.note_offer(self._offered, time.time()):
            self._mark_dirty(launch)

    # --- reports ------------------------------------------------------------------------------------------------------

    def _mark_dirty(self, launch: PoolLaunch) -> None:
        self._dirty.add(launch.handle)
        self._fresh.set()

    def _collect(self, since: Mapping[str, str]) -> list[Report]:
        """Reports of the launches whose cursors or facts have changed since they were looked at last."""
        moved = self._find_moved(since)
        for handle in moved:
            launch = self._launches.get(handle)
            if handle in since:
                self._unstored.pop(handle, None)
                if launch is not None:
                    self._follow_cursor(launch, since[handle])
            elif launch is not None and launch.lease.worker and launch.ended:
                # Its end is stored.
                self._drop(launch)
        reports = []
        for handle in [handle for handle in self._dirty | moved if handle in since]:
            self._dirty.discard(handle)
            launch = self._launches.get(handle)
            if launch is None:
                reports.append(Report(handle, (), since[handle], gone=True))
                continue
            events, cursor = project(launch, since[handle], self._life)
            if events or cursor != since[handle]:
                # Looked at again until the store has it.
                self._dirty.add(handle)
                if launch.lease is not NO_LEASE:
                    launch.lease.told_grant = True
                reports.append(Report(handle, tuple(events), cursor, native_id=launch.lease.node))
        return reports

    def _find_moved(self, since: Mapping[str, str]) -> set[str]:
        if isinstance(since, Cursors):
            return since.take_moved(self, self._fresh.set)
        moved = {handle for handle, _ in since.items() ^ self._followed.items()}
        self._followed = dict(since)
        return moved

    def _follow_cursor(self, launch: PoolLaunch, cursor: str) -> None:
        """Note what is stored: a lease may be handed to its worker from then on."""
        lease = parse_cursor(cursor)
        if lease is None or lease.worker != launch.lease.worker:
            return
        launch.trim(lease.offset)
        if not launch.lease.leased:
            launch.lease.leased = True
            self._wake_worker(launch.lease.worker)

    async def _await_workers(self, passed: Sequence[tuple[Order, PoolLaunch]]) -> set[str]:
        """Wait until the workers have these orders; the tokens of those that they have not."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + ANSWER_SECONDS
        while True:
            self._obeyed.clear()
            kept = [(order.token, launch) for order, launch in passed if self._is_held(launch)]
            unheard = {token for token, launch in kept if not launch.has_obeyed(token)}
            left = deadline - loop.time()
            if not unheard or left <= 0:
                return unheard
            try:
                async with asyncio.timeout(left):
                    await self._obeyed.wait()
            except TimeoutError:
                continue

    def _is_held(self, launch: PoolLaunch) -> bool:
        """Whether a worker may still have the launch."""
        return launch.handle in self._launches and launch.lease.lost is None

    def _wake_worker(self, name: str) -> None:
        worker = self._workers.get(name)
        if worker is not None:
            worker.news.set()

    async def _forget(self, before: float, find_known: FindKnown) -> int:
        return await forget_runs(self._root, before, {each.job for each in self._launches.values()}, find_known)


def open_cluster(config: ClusterConfig) -> PoolCluster:
    """Open a pool: nothing is touched before its first use."""
    return PoolCluster(config)


def _dismiss(pool: str) -> Denied:
    return Denied(f"this job is no worker of the pool {pool} any more")


def _remove_left(place: LaunchFiles) -> None:
    for path in (place.plan, place.grant, place.orders, place.journal):
        with contextlib.suppress(OSError):
            os.unlink(path)
