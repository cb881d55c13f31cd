"""The store as the controller sees it, in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from overspan.bridge.model.errors import Conflict, OverspanError, StoreFailed
from overspan.bridge.store.evaluation_records import (
    EvaluationFacts,
    EvaluationTally,
    JobLabel,
    StoredEvaluation,
    StoredWatch,
)
from overspan.bridge.store.pool_records import StoredPool
from overspan.bridge.store.records import (
    Change,
    Damage,
    HistoryRows,
    JobQuery,
    NewJob,
    OutboxRow,
    Receipt,
    StoredJob,
    TimelineEntry,
    TimelineRow,
)
from overspan.bridge.store.schedule_records import Crontab, StoredSchedule


class FakeRepository:
    """The store's contract over dictionaries; `broken` makes every write fail, and a crash loses nothing written."""

    def __init__(self) -> None:
        self.jobs: dict[int, StoredJob] = {}
        self.rows: dict[str, OutboxRow] = {}
        self.lines: list[TimelineRow] = []
        self.values: dict[str, str] = {}
        self.broken = False
        self.transactions = 0
        self.trouble: OverspanError | None = None
        self._ids = 1
        self.schedule_rows: dict[int, StoredSchedule] = {}
        self.crontabs: dict[str, str] = {}
        self._schedule_ids = 1
        self.schedules = FakeSchedules(self)
        self.evaluations = FakeEvaluations(self)
        self.pools = FakePools(self)
        self.receipts: dict[str, Receipt] = {}
        self.damaged: list[Damage] = []
        self.account_rows: dict[int, bytes | None] = {}
        self.pool_rows: dict[str, StoredPool] = {}
        self.watch_rows: dict[int, StoredWatch] = {}
        self.evaluation_rows: dict[int, StoredEvaluation] = {}

    @property
    def last_seq(self) -> int:
        return len(self.lines)

    def write(self) -> None:
        if self.broken:
            raise StoreFailed("the disk is full")
        self.transactions += 1

    def _tell(self, job_id: int, timeline: Sequence[TimelineEntry]) -> None:
        for line in timeline:
            row = TimelineRow(
                len(self.lines) + 1,
                job_id,
                line.task,
                line.at,
                line.start,
                line.end,
                line.reason,
                line.cause,
                line.text,
            )
            self.lines.append(row)

    @property
    def damages(self) -> list[Damage]:
        return self.damaged

    async def load_live(self) -> list[StoredJob]:
        return [stored for stored in self.jobs.values() if not stored.job.over]

    async def next_ids(self, count: int) -> int:
        first, self._ids = self._ids, self._ids + count
        return first

    async def reserve_ids(self, end: int) -> bool:
        before, self._ids = self._ids, max(self._ids, end)
        return before < end

    async def insert(
        self, jobs: Sequence[NewJob], schedule: StoredSchedule | None = None, receipt: Receipt | None = None
    ) -> None:
        await asyncio.sleep(0)
        self.write()
        self.note(receipt)
        if schedule is not None and not self.set_schedule(schedule):
            raise Conflict("the schedule was changed")
        for new in jobs:
            self.jobs[new.job.id] = StoredJob(new.job, new.cluster, new.handle, new.native_id, new.cursor, new.user)
            self._owe(new.outbox)
            self._tell(new.job.id, new.timeline)
        # Written, but the caller does not know yet.
        await asyncio.sleep(0)

    def note(self, receipt: Receipt | None) -> None:
        if receipt is not None:
            if receipt.token in self.receipts:
                raise Conflict("the receipt exists")
            self.receipts[receipt.token] = receipt

    async def find_receipt(self, token: str, user: str) -> Receipt | None:
        found = self.receipts.get(token)
        return found if found is not None and found.user == user else None

    async def draw(self, elements: Sequence[NewJob], change: Change) -> bool:
        written = await self.apply((change,))
        if written[0]:
            await self.insert(elements)
        return written[0]

    def _owe(self, rows: Sequence[OutboxRow]) -> None:
        for row in rows:
            if row.token in self.rows:
                raise Conflict(f"token {row.token} exists")
            self.rows[row.token] = row

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        await asyncio.sleep(0)
        self.write()
        written = [self._apply(change) for change in changes]
        await asyncio.sleep(0)
        return written

    def _apply(self, change: Change) -> bool:
        old = self.jobs[change.job.id]
        if old.job.version != change.expected_version:
            return False
        assert change.job.version != change.expected_version
        self.jobs[change.job.id] = StoredJob(
            change.job,
            old.cluster if change.cluster is None else change.cluster,
            old.handle if change.handle is None else change.handle,
            old.native_id if change.native_id is None else change.native_id,
            old.cursor if change.cursor is None else change.cursor,
            old.user,
        )
        self.account_rows[change.job.id] = change.account
        for token in change.outbox_done:
            self.rows.pop(token, None)
        self._owe(change.outbox_add)
        self._tell(change.job.id, change.timeline)
        return True

    async def outbox(self, cluster: str | None = None) -> list[OutboxRow]:
        return [row for row in self.rows.values() if cluster in (None, row.cluster)]

    async def defer(self, token: str, next_try_at: float, error: str) -> bool:
        row = self.rows.get(token)
        if row is not None:
            self.rows[token] = row._replace(next_try_at=next_try_at, error=error, tries=row.tries + 1)
        return row is not None

    async def settle(self, tokens: Sequence[str]) -> int:
        return sum(self.rows.pop(token, None) is not None for token in tokens)

    async def find(self, query: JobQuery) -> list[StoredJob]:
        found = [
            stored
            for stored in self.jobs.values()
            if (not query.ids or stored.job.id in query.ids)
            and (not query.users or stored.user in query.users)
            and (not query.arrays or (stored.job.element is not None and stored.job.element.array in query.arrays))
            and (query.over is None or stored.job.over is query.over)
            and (not query.writes or any(task.flushes for task in stored.job.spec.tasks))
        ]
        return found[-query.limit :] if query.limit else found

    async def find_ids(self, query: JobQuery) -> list[int]:
        def place(stored: StoredJob) -> tuple[int, bool, int]:
            element = stored.job.element
            return (stored.job.id if element is None else element.array, element is None, stored.job.id)

        return [stored.job.id for stored in sorted(await self.find(query), key=place)]

    async def history_rows(self, ids: Sequence[int]) -> list[HistoryRows]:
        found = [(self.jobs[number], self.account_rows.get(number)) for number in ids]
        arrays = [None if stored.job.element is None else stored.job.element.array for stored, _ in found]
        return [
            HistoryRows(stored.job.id, array, stored.cluster, stored.handle, rows)
            for (stored, rows), array in zip(found, arrays, strict=True)
        ]

    async def keep_history_rows(self, accounts: Sequence[tuple[int, int, bytes]]) -> None:
        self.write()
        for number, version, rows in accounts:
            if self.jobs[number].job.version == version:
                self.account_rows[number] = rows

    async def timeline(self, job_id: int) -> list[TimelineRow]:
        return [row for row in self.lines if row.job_id == job_id]

    async def events(self, since: int, limit: int) -> list[TimelineRow]:
        return self.lines[since : since + limit]

    async def forget(self, before: float) -> int:
        return 0

    async def withdraw(self, job_id: int) -> bool:
        self.write()
        found = self.jobs.get(job_id)
        if found is None or not found.job.over or any(row.job_id == job_id for row in self.rows.values()):
            return False
        del self.jobs[job_id]
        self.receipts = {token: receipt for token, receipt in self.receipts.items() if receipt.job_id != job_id}
        return True

    def next_schedule_id(self) -> int:
        number, self._schedule_ids = self._schedule_ids, self._schedule_ids + 1
        return number

    def set_schedule(self, changed: StoredSchedule) -> bool:
        old = self.schedule_rows.get(changed.id)
        if old is None or old.version != changed.version - 1:
            return False
        self.schedule_rows[changed.id] = changed
        return True

    async def meta(self, key: str) -> str | None:
        return self.values.get(key)

    async def set_meta(self, key: str, value: str) -> None:
        self.values[key] = value

    def close(self) -> None:
        pass


class FakeSchedules:
    """Its schedules and crontabs."""

    def __init__(self, repository: FakeRepository) -> None:
        self._repository = repository

    async def load(self) -> list[StoredSchedule]:
        return list(self._repository.schedule_rows.values())

    async def add(self, new: StoredSchedule, receipt: Receipt | None = None) -> int:
        await asyncio.sleep(0)
        self._repository.write()
        number = self._repository.next_schedule_id()
        self._repository.note(receipt and receipt._replace(schedule_id=number))
        self._repository.schedule_rows[number] = replace(new, id=number)
        return number

    async def change(self, changed: StoredSchedule) -> bool:
        await asyncio.sleep(0)
        self._repository.write()
        return self._repository.set_schedule(changed)

    async def remove(self, schedule_id: int) -> bool:
        self._repository.write()
        return self._repository.schedule_rows.pop(schedule_id, None) is not None

    async def read_crontab(self, user: str) -> str | None:
        return self._repository.crontabs.get(user)

    async def replace_crontab(self, new: Crontab) -> list[int]:
        self._repository.write()
        kept = {entry.id for entry in new.entries}
        for number, row in list(self._repository.schedule_rows.items()):
            if (row.user, row.facts.source) == (new.user, "crontab") and number not in kept:
                del self._repository.schedule_rows[number]
        self._repository.crontabs.pop(new.user, None)
        if new.text is not None:
            self._repository.crontabs[new.user] = new.text
        return [
            entry.id if entry.id and self._repository.set_schedule(entry) else await self.add(entry)
            for entry in new.entries
        ]


class FakePools:
    """Its pools."""

    def __init__(self, repository: FakeRepository) -> None:
        self._repository = repository

    async def load(self) -> list[StoredPool]:
        return list(self._repository.pool_rows.values())

    async def keep(self, kept: StoredPool) -> bool:
        self._repository.write()
        known = self._repository.pool_rows.get(kept.name)
        if (0 if known is None else known.version) != kept.version - 1:
            return False
        self._repository.pool_rows[kept.name] = kept
        return True

    async def remove(self, name: str) -> None:
        self._repository.write()
        self._repository.pool_rows.pop(name, None)


class FakeEvaluations:
    """Its watches and evaluations."""

    def __init__(self, repository: FakeRepository) -> None:
        self._repository = repository

    async def keep_watch(self, new: StoredWatch) -> int:
        await asyncio.sleep(0)
        for known in self._repository.watch_rows.values():
            if (known.job_id, known.name) == (new.job_id, new.name):
                return known.id
        self._repository.write()
        watch_id = len(self._repository.watch_rows) + 1
        self._repository.watch_rows[watch_id] = replace(new, id=watch_id)
        await asyncio.sleep(0)
        return watch_id

    async def change_watch(self, changed: StoredWatch) -> None:
        await asyncio.sleep(0)
        self._repository.write()
        self._repository.watch_rows[changed.id] = changed

    async def find_watches(self, jobs: Sequence[int] | None = None, ids: Sequence[int] = ()) -> list[StoredWatch]:
        rows = list(self._repository.watch_rows.values())
        if ids:
            return [row for row in rows if row.id in ids]
        return [row for row in rows if (not row.closed if jobs is None else row.job_id in jobs)]

    async def find_newest_watches(self, limit: int, user: str = "", jobs: Sequence[int] = ()) -> list[StoredWatch]:
        rows = [
            row for row in self._repository.watch_rows.values() if not user or row.user == user or row.job_id in jobs
        ]
        newest = rows[-limit:]
        return [row for row in rows if row in newest or not row.closed]

    async def count_ended(self, watches: Sequence[int]) -> list[EvaluationTally]:
        found: dict[tuple[int, str], list[EvaluationFacts]] = {}
        for row in self._repository.evaluation_rows.values():
            if row.over and row.watch_id in watches:
                found.setdefault((row.watch_id, row.facts.state), []).append(row.facts)
        return [_count(*key, facts) for key, facts in found.items()]

    async def label_jobs(self, jobs: Sequence[int]) -> dict[int, JobLabel]:
        known = {number: self._repository.jobs[number].job for number in jobs if number in self._repository.jobs}
        return {number: JobLabel(job.spec.name, job.state.value) for number, job in known.items()}

    async def keep(self, new: StoredEvaluation) -> int:
        await asyncio.sleep(0)
        key = (new.watch_id, new.checkpoint, new.content, new.run)
        if any(
            (row.watch_id, row.checkpoint, row.content, row.run) == key
            for row in self._repository.evaluation_rows.values()
        ):
            return 0
        self._repository.write()
        number = len(self._repository.evaluation_rows) + 1
        self._repository.evaluation_rows[number] = replace(new, id=number)
        await asyncio.sleep(0)
        return number

    async def change(self, changed: StoredEvaluation) -> None:
        await asyncio.sleep(0)
        self._repository.write()
        self._repository.evaluation_rows[changed.id] = changed

    async def find(self, watches: Sequence[int], live_only: bool = False) -> list[StoredEvaluation]:
        rows = (row for row in self._repository.evaluation_rows.values() if row.watch_id in watches)
        return [row for row in rows if not (live_only and row.over)]

    async def list_names(self, watch_id: int) -> list[tuple[str, str]]:
        return [
            (row.checkpoint, row.content)
            for row in self._repository.evaluation_rows.values()
            if row.watch_id == watch_id
        ]

    async def forget(self) -> int:
        return 0


def _count(watch_id: int, state: str, facts: Sequence[EvaluationFacts]) -> EvaluationTally:
    """The facts of one state, counted."""
    scores = [each.score for each in facts if each.score is not None]
    ends = [each.ended_at for each in facts if each.ended_at is not None]
    bounds = (max(scores, default=None), min(scores, default=None), max(ends, default=None))
    return EvaluationTally(watch_id, state, len(facts), *bounds)
