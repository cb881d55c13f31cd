"""Schedules: submissions that are made again and again.

A run's job and the schedule's `last_due` are written in one transaction, so a crash repeats no run. What
was due while no daemon was there is found at the start and handled by the schedule's policy.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from overspan.bridge.controller.core.recording import RETRY_SECONDS, Recorder
from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.features.due_runs import GRACE, DueRuns, made, refuse, skip, split_due, take_missed
from overspan.bridge.controller.orders.orders import JobOrders
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import (
    ScheduledRun,
    Submitted,
    Submitter,
    find_receipt,
    make_receipt,
)
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import (
    Conflict,
    Denied,
    InvalidRequest,
    NotFound,
    OverspanError,
    Rejected,
    StoreFailed,
)
from overspan.bridge.model.job import Job
from overspan.bridge.model.schedule import Overlap, Schedule
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.records import JobQuery
from overspan.bridge.store.schedule_records import ScheduleFacts, StoredSchedule

if TYPE_CHECKING:
    from overspan.bridge.controller.features.recurrence import Recurrence

log = logging.getLogger(__name__)

MAX_SCHEDULES = 10_000


class NoTimes:
    """The times of a schedule whose time zone is unknown here: none."""

    def after(self, at: float) -> float | None:
        """Never."""
        return None

    def follow(self, at: float) -> Iterator[float]:
        """None at all."""
        return iter(())


@dataclass(eq=False, slots=True)
class ScheduleEntry:
    """A schedule in memory; changed under its lock, and only after a commit."""

    stored: StoredSchedule
    times: Recurrence | NoTimes
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    gone: bool = False

    @property
    def facts(self) -> ScheduleFacts:
        """How it stands."""
        return self.stored.facts

    def next(self) -> float | None:
        """When it is due next; None while it is paused."""
        return None if self.facts.paused else self.times.after(self.facts.last_due)


class Schedules:
    """Makes the runs of all schedules."""

    def __init__(self, recorder: Recorder, submitter: Submitter, orders: JobOrders) -> None:
        self.recorder = recorder
        self.submitter = submitter
        self.orders = orders
        self._kept: dict[int, ScheduleEntry] = {}
        self._live: dict[int, set[int]] = {}

    def __iter__(self) -> Iterator[ScheduleEntry]:
        return iter(list(self._kept.values()))

    async def start(self) -> None:
        """Load every stored schedule. Raises StoreFailed."""
        for stored in await self.recorder.repository.schedules.load():
            try:
                await self.keep(stored)
            except InvalidRequest as error:
                # Its time zone may have gone. It is shown with the reason, and makes no runs.
                log.error("schedule c%d: %s", stored.id, error)
                kept = self._kept[stored.id] = ScheduleEntry(stored, NoTimes())
                now = self.recorder.clock()
                await self._change(kept, replace(stored.facts, message=error.message, message_at=now))

    # --- making and looking -------------------------------------------------------------------------------------------

    async def create(self, submission: Submission, answer: Submitted, cron: Schedule, check: bool) -> Submitted:
        """Make a schedule of a submission that was read and found good; with `check` only tell when it would run."""
        new = await self.prepare(submission, answer, cron)
        times = await make_times(new.facts.schedule)
        due = times.after(new.facts.last_due)
        if due is None:
            raise InvalidRequest(f"{cron.text!r} never comes")
        answer = replace(answer, task_ids=(), next_due=due)
        if check:
            return replace(answer, text="The schedule is good")
        taken = await find_receipt(self.recorder.repository, submission)
        if taken is not None:
            return replace(answer, schedule=taken.schedule_id)
        if len(self._kept) >= MAX_SCHEDULES:
            raise Rejected(f"there are {len(self._kept)} schedules already, which is the limit")
        schedule_id = await self.recorder.repository.schedules.add(new, make_receipt(submission, new.facts.created_at))
        await self.keep(replace(new, id=schedule_id))
        return replace(answer, schedule=schedule_id)

    async def prepare(self, submission: Submission, answer: Submitted, cron: Schedule) -> StoredSchedule:
        """The record of a schedule that begins now; its time zone is the submitter's where it names none."""
        zone = cron.timezone or await asyncio.to_thread(_local_zone, submission.environment.get("TZ", ""))
        now = self.recorder.clock()
        facts = ScheduleFacts(answer.name, answer.cluster, replace(cron, timezone=zone), now, now)
        # Its runs are submissions of their own.
        return StoredSchedule(0, 1, submission.user, facts, encode(replace(submission, token="")))

    async def keep(self, stored: StoredSchedule) -> None:
        """Take a schedule into memory, and see what is due."""
        self._kept[stored.id] = ScheduleEntry(stored, await make_times(stored.facts.schedule))
        self.recheck(stored.id)

    def drop(self, schedule_id: int) -> None:
        """Drop a schedule that is no longer in the store."""
        kept = self._kept.pop(schedule_id, None)
        if kept is not None:
            kept.gone = True
        self.recorder.timers.drop(f"schedule:{schedule_id}")

    def find(self, schedule_id: int, user: str) -> ScheduleEntry:
        """The schedule of that number. Raises NotFound, and Denied for another user's."""
        kept = self._kept.get(schedule_id)
        if kept is None:
            raise NotFound(f"there is no schedule c{schedule_id}", remedy="`span cron list` lists them")
        if kept.stored.user not in ("", user):
            raise Denied(f"the schedule c{schedule_id} belongs to {kept.stored.user}")
        return kept

    async def describe(self) -> list[dict[str, Any]]:
        """Every schedule with its counts, its next time and its last job's state; nothing of the request's secrets."""
        lasts = {kept.facts.last_job for kept in self} - {None}
        states = {job: entry.job.state.value for job in lasts if job and (entry := self.recorder.registry.get(job))}
        older = tuple(job for job in lasts if job and job not in states)
        if older:
            found = await self.recorder.repository.find(JobQuery(ids=older))
            states.update({stored.job.id: stored.job.state.value for stored in found})
        return [_describe(kept, states) for kept in self]

    # --- orders -------------------------------------------------------------------------------------------------------

    async def pause(self, schedule_id: int, user: str) -> None:
        """Make no more runs; what was missed and not made up for yet is given up."""
        kept = self.find(schedule_id, user)
        async with kept.lock:
            await self._change(kept, replace(kept.facts, paused=True, owed=()))
            self.recorder.timers.drop(f"schedule:{schedule_id}")

    async def resume(self, schedule_id: int, user: str) -> None:
        """Go on from now; what was due in between counts as not wanted."""
        kept = self.find(schedule_id, user)
        async with kept.lock:
            if kept.facts.paused:
                await self._change(kept, replace(kept.facts, paused=False, last_due=self.recorder.clock()))
        self.recheck(schedule_id)

    async def run(self, schedule_id: int, user: str) -> Submitted:
        """Make a run now, as if it were due. Raises Conflict while one lives that it may not overlap."""
        kept = self.find(schedule_id, user)
        async with kept.lock:
            live = self.live(schedule_id)
            if live and kept.facts.schedule.overlap is Overlap.SKIP:
                raise Conflict(f"job {live[0]} of the schedule c{schedule_id} is not over", remedy="wait, or cancel it")
            await self._make_room(kept)
            return await self._submit(kept, self.recorder.clock(), kept.facts)

    async def delete(self, schedule_id: int, user: str) -> None:
        """Forget a schedule; jobs that it has made go on."""
        kept = self.find(schedule_id, user)
        if kept.facts.source != "job_file":
            raise Conflict(
                f"the schedule c{schedule_id} is an entry of the crontab",
                remedy="remove its line with `span cron -e`, or `span cron pause` it",
            )
        async with kept.lock:
            await self.recorder.repository.schedules.remove(schedule_id)
            self.drop(schedule_id)

    # --- what is due --------------------------------------------------------------------------------------------------

    def recheck(self, schedule_id: int) -> None:
        """Make the due runs of a schedule now."""
        kept = self._kept.get(schedule_id)
        if kept is not None:
            self.recorder.spawn(self._look(kept), f"looking at schedule c{schedule_id}")

    def look_again(self) -> None:
        """Compute every schedule's due times again after a clock jump."""
        for schedule_id in list(self._kept):
            self.recheck(schedule_id)

    def live(self, schedule_id: int) -> list[int]:
        """The jobs of a schedule that are not over, oldest first."""
        return sorted(self._live.get(schedule_id, ()))

    def follow(self, before: Job | None, entry: JobEntry) -> None:
        """Keep count of the live runs; the end of one may let a missed one begin."""
        job = entry.job
        cron = job.spec.cron
        if cron is None or not cron.id or job.element is not None:
            return
        live = self._live.setdefault(cron.id, set())
        if not job.over:
            live.add(job.id)
            return
        live.discard(job.id)
        if not live:
            del self._live[cron.id]
        kept = self._kept.get(cron.id)
        if kept is not None and kept.facts.owed:
            self.recheck(cron.id)

    async def _look(self, kept: ScheduleEntry) -> None:
        async with kept.lock:
            if kept.gone or kept.facts.paused:
                return
            try:
                await self._take(kept, self.recorder.clock())
            except OverspanError as error:
                log.warning("schedule c%d: %s; trying again", kept.stored.id, error)
                await self._reload(kept)
                self._arm(kept, self.recorder.clock() + RETRY_SECONDS)
            except Exception:
                log.exception("schedule c%d failed; trying again", kept.stored.id)
                self._arm(kept, self.recorder.clock() + GRACE)
            else:
                self._arm(kept, kept.next())

    async def _take(self, kept: ScheduleEntry, now: float) -> None:
        due = await self._split(kept, now)
        if due.late:
            await self._change(kept, take_missed(kept.facts, due, now))
            log.warning("schedule c%d: %s", kept.stored.id, kept.facts.message)
        while kept.facts.owed and self._free(kept):
            first, *rest = kept.facts.owed
            await self._try(kept, first, replace(kept.facts, owed=tuple(rest)))
        for at in due.ready:
            live = self.live(kept.stored.id)
            if live and kept.facts.schedule.overlap is Overlap.SKIP:
                await self._change(kept, skip(kept.facts, at, live[0], now))
                continue
            await self._make_room(kept)
            await self._try(kept, at, replace(kept.facts, last_due=at))

    async def _split(self, kept: ScheduleEntry, now: float) -> DueRuns:
        following = kept.times.after(kept.facts.last_due)
        if following is None or following > now:
            return DueRuns()
        # Much may be due after a long absence.
        return await asyncio.to_thread(lambda: split_due(kept.times.follow(kept.facts.last_due), now))

    def _free(self, kept: ScheduleEntry) -> bool:
        """Whether a missed run may be made now: one after another, unless they may overlap."""
        return kept.facts.schedule.overlap is Overlap.ALLOW or not self.live(kept.stored.id)

    async def _make_room(self, kept: ScheduleEntry) -> None:
        live = self.live(kept.stored.id)
        if live and kept.facts.schedule.overlap is Overlap.REPLACE:
            await self.orders.cancel(CancelRequest(refs=[str(job_id) for job_id in live], by=kept.stored.user))

    async def _try(self, kept: ScheduleEntry, at: float, facts: ScheduleFacts) -> None:
        """Make a run; a refusal is kept and shown. `facts` say that this time has been dealt with."""
        now = self.recorder.clock()
        version = kept.stored.version
        try:
            await self._submit(kept, at, facts)
            return
        except StoreFailed:
            raise
        except Conflict as error:
            await self._reload(kept)
            if kept.stored.version != version:
                raise
            why = error.message
        except OverspanError as error:
            why = error.message
        except Exception as error:
            log.exception("schedule c%d: its run could not be submitted", kept.stored.id)
            why = f"internal error, {type(error).__name__}; daemon.log has more"
        log.warning("schedule c%d: its run was refused: %s", kept.stored.id, why)
        await self._change(kept, refuse(facts, at, why, now))

    async def _submit(self, kept: ScheduleEntry, at: float, facts: ScheduleFacts) -> Submitted:
        stored, now = kept.stored, self.recorder.clock()

        def record(job_id: int) -> StoredSchedule:
            return replace(stored, version=stored.version + 1, facts=made(facts, job_id, now))

        cron = replace(facts.schedule, id=stored.id, due=at)
        answer = await self.submitter.make_run(decode(Submission, dict(stored.request)), ScheduledRun(cron, record))
        kept.stored = record(answer.id)
        return answer

    async def _change(self, kept: ScheduleEntry, facts: ScheduleFacts) -> None:
        changed = replace(kept.stored, version=kept.stored.version + 1, facts=facts)
        if not await self.recorder.repository.schedules.change(changed):
            raise Conflict(f"the schedule c{changed.id} was changed by another request at the same time")
        kept.stored = changed

    async def _reload(self, kept: ScheduleEntry) -> None:
        """Reload a schedule from the store, after a failed compare-and-set."""
        try:
            found = {stored.id: stored for stored in await self.recorder.repository.schedules.load()}
        except OverspanError:
            return
        if kept.stored.id in found:
            kept.stored = found[kept.stored.id]
        else:
            self.drop(kept.stored.id)

    def _arm(self, kept: ScheduleEntry, at: float | None) -> None:
        name = f"schedule:{kept.stored.id}"
        if at is None or kept.gone:
            self.recorder.timers.drop(name)
        else:
            self.recorder.timers.set(name, at, lambda: self.recheck(kept.stored.id))


async def make_times(schedule: Schedule) -> Recurrence:
    """The times of a schedule. Raises InvalidRequest."""

    def make() -> Recurrence:
        # Loaded with the first schedule, and in a thread: it takes long to import.
        from overspan.bridge.controller.features.recurrence import Recurrence

        return Recurrence(schedule)

    try:
        return await asyncio.to_thread(make)
    except ValueError as error:
        raise InvalidRequest(str(error)) from None


def _local_zone(wished: str) -> str:
    from overspan.bridge.controller.features.recurrence import local_zone

    return local_zone(wished)


def _describe(kept: ScheduleEntry, states: dict[int, str]) -> dict[str, Any]:
    facts, request = kept.facts, kept.stored.request
    schedule = facts.schedule
    return {
        "id": kept.stored.id,
        "user": kept.stored.user,
        "name": facts.name,
        "cluster": facts.cluster,
        "source": facts.source,
        "lines": [facts.first_line, facts.last_line] if facts.first_line else None,
        "file": request.get("file", ""),
        "directory": request.get("directory", ""),
        "schedule": schedule.text,
        "timezone": schedule.timezone,
        "missed": schedule.missed.value,
        "overlap": schedule.overlap.value,
        "paused": facts.paused,
        "created_at": facts.created_at,
        "next_due": kept.next(),
        "last_run_at": facts.last_run_at,
        "last_job": facts.last_job,
        "last_state": states.get(facts.last_job or 0, ""),
        "runs": facts.runs,
        "missed_runs": facts.missed,
        "skipped_runs": facts.skipped,
        "refused_runs": facts.refused,
        "owed_runs": len(facts.owed),
        "message": facts.message,
        "message_at": facts.message_at,
    }
