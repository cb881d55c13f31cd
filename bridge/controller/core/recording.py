"""The one way to change a job: fill a unit of work, commit it, and only then publish it.

A change holds the locks of its jobs until the commit has ended, and goes on when its caller is cancelled. So memory and
store never diverge. As a second guard the store compares and sets each job's version.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

from overspan.bridge.controller.core.changes import Changes
from overspan.bridge.controller.core.outbox import SUBMIT, Outbox
from overspan.bridge.controller.core.registry import NOWHERE, JobEntry, Registry, entry_of, join_handle, split_handle
from overspan.bridge.controller.core.repository import Repository
from overspan.bridge.controller.core.row_upkeep import RowUpkeep
from overspan.bridge.controller.core.timers import Timers
from overspan.bridge.controller.core.unit_of_work import (
    Completion,
    UnitOfWork,
    is_start,
    open_unit,
    submitted,
)
from overspan.bridge.lifecycle.clocks import is_moved
from overspan.bridge.lifecycle.timeline import Transition
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict, OverspanError, StoreFailed
from overspan.bridge.model.ids import IndexRange
from overspan.bridge.model.job import new_element
from overspan.bridge.model.states import State
from overspan.bridge.store.records import Change, JobQuery, NewJob, Receipt
from overspan.bridge.store.schedule_records import StoredSchedule

log = logging.getLogger(__name__)

T = TypeVar("T")
Clock = Callable[[], float]
Ranges = tuple[IndexRange, ...]
Work = Callable[[list[UnitOfWork]], T]
Accept = Callable[[Sequence[UnitOfWork]], AbstractContextManager[None]]

_AT_ONCE = 500
"""Jobs of one transaction."""
RETRY_SECONDS = 5.0
"""How long after a failed write something that is due is tried again."""


class Recorder:
    """Changes jobs in the store, then in memory."""

    def __init__(
        self, repository: Repository, timers: Timers, clock: Clock, registry: Registry, completion: Completion
    ) -> None:
        self.repository = repository
        self.timers = timers
        self.clock = clock
        self.registry = registry
        self.completion = completion
        self.dependency_resolver = completion.resolver
        self.outbox = Outbox()
        self._accept: Accept = lambda units: nullcontext()
        self.changes = Changes()
        self._row_upkeep = RowUpkeep()
        self._jumped = 0.0
        """Seconds by which the machine's clock was set since the start, in all."""
        self._running: set[asyncio.Task[Any]] = set()

    def use_intake(self, accept: Accept) -> None:
        """Have the launches of new jobs accepted, where that can be stored with them, by `Intake.accept`."""
        self._accept = accept

    async def load(self) -> None:
        """Load the stored jobs and outbox, then do what fell due while no daemon ran."""
        live, owed = await self.repository.load_live(), await self.repository.outbox()
        damages = self.repository.damages
        self.registry.set_aside(one for damage in damages for one in (damage.job_id, damage.array_id) if one)
        for stored in live:
            if stored.job.id not in self.registry.aside:
                self.registry.add(entry_of(stored))
        for row in owed:
            if row.job_id in self.registry.aside:
                continue
            if self.registry.get(row.job_id) is None:
                await self.repository.settle((row.token,))
            else:
                # An earlier process may have made the call before it died. Repeating it under its token finds out.
                self.outbox.add(row._replace(next_try_at=0.0), tried=True)
        for entry in list(self.registry):
            self.changes.committed.publish(None, entry)
        ids = [entry.job.id for entry in self.registry]
        for begin in range(0, len(ids), _AT_ONCE):
            # In parts: the units of 100,000 jobs at once would take more memory than the jobs.
            await self.change(ids[begin : begin + _AT_ONCE], lambda units: None)

    async def change(self, job_ids: Iterable[int], work: Work[T], *, urgent: bool = False) -> T:
        """Let `work` fill a unit of work for each job in memory, and write all units in one transaction.

        An error of `work` is raised here and nothing is written. Raises StoreFailed when the store cannot write,
        Conflict when the stored version of a job is not the one in memory. `urgent` changes, such as those that end
        work, take effect even if the store fails; they are written with the job's next change, or after RETRY_SECONDS.
        """
        return await self._uninterrupted(self._change(list(job_ids), work, urgent))

    def submit_soon(self, job_id: int) -> None:
        """Have a submission that was refused for now tried again at once: what it waited for has come."""
        entry = self.registry.get(job_id)
        row = None if entry is None else self.outbox.submit_of(job_id, entry.cluster)
        if row is not None:
            self.outbox.hasten(row.token, self.clock())
            self.changes.owed.publish((row.cluster, row.kind))

    async def insert(
        self, entries: list[JobEntry], schedule: StoredSchedule | None = None, receipt: Receipt | None = None
    ) -> None:
        """Write new jobs and what they owe, the schedule they are a run of, the receipt, in one transaction."""
        await self._uninterrupted(self._insert(entries, schedule, receipt))

    async def withdraw(self, job_id: int) -> None:
        """Delete a job that was refused before its number was answered. Raises StoreFailed."""
        await self._uninterrupted(self._withdraw(job_id))

    async def draw(self, array_id: int, ranges: Ranges, reason: str = "None") -> bool:
        """Make jobs of an array's elements, in one transaction with the array; False if they no longer wait.

        `reason` is why the remaining elements go on waiting.
        """
        return await self._uninterrupted(self._draw(array_id, ranges, reason))

    async def move_clock(self, seconds: float) -> None:
        """Shift the jobs' due times by `seconds`, the jump of the machine's clock: delays stay as long as they were."""
        # From here on each change first shifts the times of its jobs.
        self._jumped += seconds
        self.outbox.move_clock(seconds)
        for entry in self.registry:
            if entry.retry_at is not None:
                entry.retry_at += seconds
        live = [entry.job.id for entry in self.registry if not entry.job.over]
        for begin in range(0, len(live), _AT_ONCE):
            part = live[begin : begin + _AT_ONCE]
            try:
                await self.change(part, lambda units: None)
            except OverspanError as error:
                log.warning("the clock of %d jobs: %s; trying again", len(part), error)
                for job_id in part:
                    self._arm(job_id, self.clock() + RETRY_SECONDS)

    async def close(self) -> None:
        """Write the changes that took effect ahead of the store, and wait for those under way."""
        late = [entry.job.id for entry in self.registry if entry.unwritten is not None]
        try:
            await self.change(late, lambda units: None)
        except OverspanError as error:
            log.error("ends that the next daemon will not know of, of jobs %s: %s", late, error)
        while self._running:
            await asyncio.wait(self._running)

    @property
    def busy(self) -> bool:
        """Whether a change is under way."""
        return bool(self._running)

    def spawn(self, work: Awaitable[Any], name: str) -> None:
        """Run something in the background; a failure is logged."""
        task = asyncio.ensure_future(work)
        self._running.add(task)

        def end(task: asyncio.Future[Any]) -> None:
            self._running.discard(task)
            if not task.cancelled() and task.exception() is not None:
                log.error("%s failed", name, exc_info=task.exception())

        task.add_done_callback(end)

    def recheck(self, job_id: int) -> None:
        """Decide again, in the background, what is due for a job."""
        self.spawn(self._recheck(job_id), f"looking at job {job_id}")

    async def _recheck(self, job_id: int) -> None:
        try:
            await self.change((job_id,), lambda units: None)
        except OverspanError as error:
            log.warning("job %d: %s; trying again", job_id, error, extra={"job": job_id})
            self._arm(job_id, self.clock() + RETRY_SECONDS)

    async def _uninterrupted(self, work: Awaitable[T]) -> T:
        task = asyncio.ensure_future(work)
        self._running.add(task)
        task.add_done_callback(self._forget)
        return await asyncio.shield(task)

    def _forget(self, task: asyncio.Future[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            # Retrieved here: asyncio would complain about a failure whose caller was cancelled.
            task.exception()

    async def _change(self, job_ids: list[int], work: Work[T], urgent: bool) -> T:
        async with self.registry.locked(job_ids):
            entries = [entry for entry in map(self.registry.get, dict.fromkeys(job_ids)) if entry is not None]
            units = [open_unit(entry, self.outbox) for entry in entries]
            jumped, now = self._jumped, self.clock()
            for unit in units:
                self._move_times(unit, jumped, now)
            result = work(units)
            now = self.clock()
            for unit in units:
                self.completion.complete(unit, now)
            await self._commit([unit for unit in units if unit.changed], urgent)
            for unit in units:
                self._rearm(unit)
            self.registry.forget_finished(now)
            return result

    def _move_times(self, unit: UnitOfWork, jumped: float, now: float) -> None:
        """Shift a job's times by a clock jump, unless its decider does that itself."""
        seconds = jumped - unit.entry.jumped
        if not seconds:
            return
        if is_moved(unit.job) and (unit.job.granted_at is None or self.completion.decides(unit)):
            unit.advance(events.ClockSet(now, seconds))
            unit.jumped = jumped
        else:
            unit.entry.jumped = jumped

    async def _commit(self, units: list[UnitOfWork], urgent: bool) -> None:
        if not units:
            return
        changes = [unit.to_change() for unit in units]
        try:
            written = await self.repository.apply(changes)
        except StoreFailed as error:
            ahead = [(unit, change) for unit, change in zip(units, changes, strict=True) if _may_precede(unit, urgent)]
            self._go_ahead(ahead, error)
            if len(ahead) < len(units):
                raise
            return
        for unit, change, good in zip(units, changes, written, strict=True):
            if good:
                unit.entry.unwritten = None
                unit.job = change.job
                self._publish(unit)
        lost = [unit.job.id for unit, good in zip(units, written, strict=True) if not good]
        if lost:
            await self._reload(lost)
            raise Conflict(f"job {lost[0]} was changed by another request at the same time", remedy="try again")

    def _go_ahead(self, pairs: list[tuple[UnitOfWork, Change]], error: StoreFailed) -> None:
        """Publish changes that could not be written; each is stored with the job's next change."""
        for unit, change in pairs:
            if unit.entry.unwritten is None:
                fields = {"job": unit.job.id, "cluster": unit.cluster}
                log.warning(
                    "job %d: what ends it is done, not yet recorded: %s", unit.job.id, error.message, extra=fields
                )
            unit.entry.unwritten = change
            unit.job = change.job
            self._publish(unit)
            self._rearm(unit)

    def _rearm(self, unit: UnitOfWork) -> None:
        at = unit.wake_at
        if unit.entry.unwritten is not None:
            again = self.clock() + RETRY_SECONDS
            at = again if at is None else min(at, again)
        self._arm(unit.job.id, at)

    async def _insert(self, entries: list[JobEntry], schedule: StoredSchedule | None, receipt: Receipt | None) -> None:
        units = self._open_new(entries)
        with self._accept(units):
            await self.repository.insert([_new_job(unit) for unit in units], schedule, receipt)
            self._take_in(units)

    async def _draw(self, array_id: int, ranges: Ranges, reason: str) -> bool:
        indices = [index for part in ranges for index in part.values()]
        first_id = await self.repository.next_ids(len(indices))
        async with self.registry.locked((array_id,)):
            entry = self.registry.get(array_id)
            if entry is None:
                return False
            head = open_unit(entry, self.outbox)
            if not head.advance(
                events.Drawn(self.clock(), tuple((part.first, part.last, part.step) for part in ranges), first_id)
            ):
                return False
            if head.job.reason != reason and head.job.state is State.PENDING:
                head.advance(events.Queued(self.clock(), reason))
            units = self._open_new(
                [
                    JobEntry(new_element(head.job, index, first_id + offset), entry.cluster, entry.user)
                    for offset, index in enumerate(indices)
                ]
            )
            change = head.to_change()
            with self._accept(units):
                if not await self.repository.draw([_new_job(unit) for unit in units], change):
                    await self._reload([array_id])
                    raise Conflict(
                        f"job {array_id} was changed by another request at the same time", remedy="try again"
                    )
                entry.unwritten = None
                head.job = change.job
                self._publish(head)
                self._take_in(units)
            return True

    async def _withdraw(self, job_id: int) -> None:
        async with self.registry.locked((job_id,)):
            entry = self.registry.get(job_id)
            if entry is None or not entry.shunned or entry.unwritten is not None:
                return
            if await self.repository.withdraw(job_id):
                self.registry.remove(job_id)
                self.timers.drop(f"job:{job_id}")
                self.changes.withdrawn.publish(entry.job)
                self.changes.jobs.wake(job_id)

    def _open_new(self, entries: list[JobEntry]) -> list[UnitOfWork]:
        now = self.clock()
        units = []
        for entry in entries:
            entry.jumped = self._jumped
            unit = UnitOfWork(entry, entry.job, [])
            unit.timeline.append(submitted(entry.job))
            self.completion.complete(unit, now)
            units.append(unit)
        return units

    def _take_in(self, units: list[UnitOfWork]) -> None:
        """Add new jobs to the registry once they are stored."""
        for unit in units:
            unit.entry.job = unit.job
            self.registry.add(unit.entry)
            self._publish(unit, new=True)
            self._arm(unit.job.id, unit.wake_at)

    async def _reload(self, job_ids: list[int]) -> None:
        """Replace entries by what the store has, after a failed compare-and-set."""
        for stored in await self.repository.find(JobQuery(ids=tuple(job_ids))):
            fields = {"job": stored.job.id}
            log.error("job %d in memory was not the one in the store", stored.job.id, extra=fields)
            self.registry.remove(stored.job.id)
            again = entry_of(stored)
            again.jumped = self._jumped
            self.registry.add(again)

    def _publish(self, unit: UnitOfWork, new: bool = False) -> None:
        entry = unit.entry
        before = None if new else entry.job
        if unit.jumped is not None:
            entry.jumped = unit.jumped
        watched = entry.watched and unit.handle is None
        if unit.handle is not None:
            self.registry.unwatch(entry)
            entry.handle_launch, entry.handle = split_handle(unit.handle)
        if unit.cluster != entry.cluster:
            entry.cluster, entry.retry_at = unit.cluster, None
            entry.written = NOWHERE
        if unit.handle is not None:
            self.registry.locate(entry)
        entry.native_id = entry.native_id if unit.native_id is None else unit.native_id
        entry.cursor = entry.cursor if unit.cursor is None else unit.cursor
        for token in unit.done:
            self.outbox.done(token)
        for row in unit.add:
            self.outbox.add(row)
            self.changes.owed.publish((row.cluster, row.kind))
        if self.outbox.submit_of(entry.job.id, entry.cluster) is None:
            entry.retry_at = None
        known = {bid.handle for bid in entry.job.bids}
        self.registry.put(entry, unit.job)
        self._row_upkeep.note(entry)
        if entry.watched and not watched:
            self.changes.watched.publish(entry.cluster)
        for bid in entry.job.bids:
            if bid.handle and bid.handle not in known:
                self.changes.watched.publish(bid.cluster)
        self.changes.jobs.wake(entry.job.id)
        if unit.timeline:
            self.changes.timeline.wake()
            _log_moves(entry, unit.timeline)
        self.changes.committed.publish(before, entry)

    def _arm(self, job_id: int, at: float | None) -> None:
        if at is None:
            self.timers.drop(f"job:{job_id}")
        else:
            self.timers.set(f"job:{job_id}", at, lambda: self.recheck(job_id))


def _log_moves(entry: JobEntry, timeline: Sequence[Transition]) -> None:
    """Log each change of state: of the job, and of its tasks if it has several."""
    several = len(entry.job.tasks) > 1
    for move in timeline:
        if move.end and (several or not move.task):
            why = f" ({move.reason})" if move.reason not in ("", "None") else ""
            fields = {"job": entry.job.id, "task": move.task, "cluster": entry.cluster}
            of_task = f", task {move.task}" if move.task else ""
            log.info("job %d%s: %s%s", entry.job.id, of_task, move.end, why, extra=fields)


def _may_precede(unit: UnitOfWork, urgent: bool) -> bool:
    """Whether a unit may take effect before it is stored.

    A cluster's report may not: the cluster discards what has ended and would not report it again. Nor may a start: a
    later daemon would not know of it, and would start the same work again.
    """
    starts = any(row.kind == SUBMIT or is_start(row) for row in unit.add)
    return (urgent or unit.ends) and not starts and unit.cursor is None and unit.handle is None


def _new_job(unit: UnitOfWork) -> NewJob:
    return NewJob(
        unit.job,
        unit.cluster,
        unit.entry.user,
        tuple(unit.add),
        tuple(unit.timeline),
        unit.handle or "",
        unit.native_id or "",
        unit.cursor or "",
    )


def stored_handle(unit: UnitOfWork, handle: str) -> str:
    """The handle of the unit's present launch as the store keeps it."""
    return join_handle(unit.job.launch, handle)
