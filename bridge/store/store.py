"""The store's asynchronous interface for the controller: a call that returns is durable. Imports SQLAlchemy.

Every method raises StoreFailed if the database fails (full disk, damage, no permission), and Conflict if another daemon
has taken it over; then nothing of the call is written. Cancelling the caller does not undo a write.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from functools import partial
from typing import Any

from overspan.bridge.model.errors import Conflict, OverspanError
from overspan.bridge.store import receipts, statements
from overspan.bridge.store.connection import parse_target
from overspan.bridge.store.evaluations import EvaluationStore
from overspan.bridge.store.pools import PoolStore
from overspan.bridge.store.records import (
    Change,
    Damage,
    HistoryRows,
    JobQuery,
    NewJob,
    OutboxRow,
    Receipt,
    StoredJob,
    TimelineRow,
)
from overspan.bridge.store.requests import StoreRequests
from overspan.bridge.store.rows import JobReader, alteration, clean, drawing, insertion
from overspan.bridge.store.schedule_records import StoredSchedule
from overspan.bridge.store.schedules import CHANGED, ScheduleStore, changed_values
from overspan.bridge.store.sqlite_errors import LEFT, Unreadable
from overspan.bridge.store.writer import Writer

_FORGET_AT_ONCE = 200
"""Jobs that one transaction deletes."""
_LOADED_AT_ONCE = 500
"""Jobs that are read in one part when the daemon starts. Each is a variable of the statement, and SQLite before 3.32
allows 999."""
_DECODE_HERE = 20
"""Rows that are decoded on the event loop; more of them would delay other requests."""


class Store:
    """One database behind one writer thread: jobs, outbox, timeline and single values; all else by its ports."""

    def __init__(self, writer: Writer, requests: StoreRequests | None = None) -> None:
        self._writer = writer
        self._requests = requests or StoreRequests(writer.put)
        self.schedules = ScheduleStore(self._requests)
        self.evaluations = EvaluationStore(self._requests)
        self.pools = PoolStore(self._requests)

    @classmethod
    def open(cls, target: str | os.PathLike[str], *, exclusive: bool = True, wait: float = 5.0) -> Store:
        """Open or create the database at a path, ':memory:' or sqlite:// URL, and upgrade it. Blocks.

        `exclusive` locks all other processes out while it is open, and needs no shared memory (NFS). `wait` are the
        seconds to wait for another process's lock. Raises StoreFailed, or Conflict if it is in use.
        """
        writer = Writer(parse_target(target, exclusive=exclusive, wait=wait))
        writer.start()
        return cls(writer)

    def close(self) -> None:
        """Write all queued requests and close. Blocks; a second call does nothing."""
        self._writer.stop()

    @property
    def last_seq(self) -> int:
        """The newest committed position of the event stream."""
        return self._writer.last_seq

    @property
    def trouble(self) -> OverspanError | None:
        """Why the last transaction failed; None if it succeeded."""
        return self._writer.trouble

    @property
    def damages(self) -> list[Damage]:
        """The rows that could not be read since the store was opened; they are left as they are."""
        return list(self._requests.damages.values())

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def next_ids(self, count: int) -> int:
        """Reserve `count` consecutive ids, and return the first. The id of a job is never used again."""
        if count < 1:
            raise ValueError("count must be at least 1")
        return self._writer.draw_ids(count)

    async def reserve_ids(self, end: int) -> bool:
        """Use no new id below `end` any more; returns whether there was an unused one."""
        return self._writer.reserve_ids(end)

    async def insert(
        self, jobs: Sequence[NewJob], schedule: StoredSchedule | None = None, receipt: Receipt | None = None
    ) -> None:
        """Write new jobs with outbox, timeline, the schedule that they are a run of, and receipt, atomically.

        Raises Conflict for an id or token that exists or a schedule that was changed, InvalidRequest for a value that
        SQLite cannot store.
        """
        if not jobs:
            return
        batch = insertion(jobs)
        batch.schedules += [] if schedule is None else [changed_values(schedule)]
        batch.receipts += [] if receipt is None else [receipt._asdict()]
        self._writer.reserve_ids(max(new.job.id + max(1, len(new.job.tasks)) for new in jobs))
        if not all(await self._requests.write((batch,))):
            raise Conflict(CHANGED, remedy="try again")

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Compare-and-set: write each change whose job has the expected version; the answer is False for the others.

        Raises Conflict if a token to add exists already; then none of the changes is written.
        """
        if not changes:
            return []
        return await self._requests.write(tuple(map(alteration, changes)))

    async def draw(self, elements: Sequence[NewJob], change: Change) -> bool:
        """Write an array's new elements, and the array without them, atomically; False for another version."""
        self._writer.reserve_ids(max(new.job.id + 1 for new in elements))
        return (await self._requests.write((drawing(elements, change),)))[0]

    async def load_live(self) -> list[StoredJob]:
        """Every live job that can be read, by id."""
        reader, found = JobReader(), list[StoredJob]()
        ids = await self._requests.read(statements.find_live)
        for begin in range(0, len(ids), _LOADED_AT_ONCE):
            # In parts: the documents of 100,000 jobs at once would take several times what the jobs do.
            wanted = ids[begin : begin + _LOADED_AT_ONCE]
            rows = await self._requests.read(partial(statements.read_jobs, ids=wanted))
            part, damages = await _decode(rows, reader)
            self._requests.note(damages)
            found += part
        return found

    async def find(self, query: JobQuery) -> list[StoredJob]:
        """Ended and live jobs that match, newest last. Raises Unreadable if all jobs of a query by ids are damaged."""
        found, damages = await _decode(await self._requests.read(lambda connection: statements.find(connection, query)))
        self._requests.note(damages)
        if query.ids and damages and not found:
            raise Unreadable(damages[0].text, remedy=LEFT)
        return found

    async def find_ids(self, query: JobQuery) -> list[int]:
        """The jobs that match, in the order of listings: newest last, an array's elements together and before it."""
        return await self._requests.read(lambda connection: statements.find_ids(connection, query))

    async def history_rows(self, ids: Sequence[int]) -> list[HistoryRows]:
        """The history rows of these jobs, up to 30,000, in the order of listings."""
        return await self._requests.read(lambda connection: statements.read_history_rows(connection, ids))

    async def keep_history_rows(self, accounts: Sequence[tuple[int, int, bytes]]) -> None:
        """Write history rows of ended jobs, each as (id, version, rows); a job with another version is skipped."""
        await self._requests.call(lambda connection: statements.keep_history_rows(connection, accounts))

    async def find_receipt(self, token: str, user: str) -> Receipt | None:
        """The receipt of a user's submission; None if it was never accepted."""
        return await self._requests.read(lambda connection: receipts.find(connection, token, user))

    async def forget(self, before: float) -> int:
        """Delete receipts older than a time, and jobs that ended before it without a call in the outbox.

        Returns the number of jobs.
        """
        total = 0
        while True:
            # In small transactions, so that submissions do not wait.
            count: int = await self._requests.call(
                lambda connection: statements.forget(connection, before, _FORGET_AT_ONCE)
            )
            total += count
            if count < _FORGET_AT_ONCE:
                return total

    async def withdraw(self, job_id: int) -> bool:
        """Delete an ended job without a call in the outbox, with its receipt; False for any other."""
        return bool(await self._requests.call(lambda connection: int(statements.withdraw(connection, job_id))))

    # --- outbox -------------------------------------------------------------------------------------------------------

    async def outbox(self, cluster: str | None = None) -> list[OutboxRow]:
        """The outbox of a cluster, or of all, oldest first, with the calls whose next try is not due yet."""
        found, damages = await self._requests.read(lambda connection: statements.read_outbox(connection, cluster))
        self._requests.note(damages)
        return found

    async def defer(self, token: str, next_try_at: float, error: str) -> bool:
        """Count a failed try of a call; False if it is no longer in the outbox."""
        text = clean(error)
        done: int = await self._requests.call(
            lambda connection: int(statements.defer(connection, token, next_try_at, text))
        )
        return bool(done)

    async def settle(self, tokens: Sequence[str]) -> int:
        """Remove answered calls that changed no job from the outbox; returns how many there were."""
        return await self._requests.call(lambda connection: statements.settle(connection, tokens))

    # --- timeline and events ------------------------------------------------------------------------------------------

    async def timeline(self, job_id: int) -> list[TimelineRow]:
        """A job's transitions, oldest first."""
        return await self._requests.read(lambda connection: statements.read_timeline(connection, job_id))

    async def events(self, since: int, limit: int = 1000) -> list[TimelineRow]:
        """Transitions of all jobs after position `since`, oldest first, at most `limit`."""
        return await self._requests.read(lambda connection: statements.read_events(connection, since, limit))

    # --- single values ------------------------------------------------------------------------------------------------

    async def meta(self, key: str) -> str | None:
        """A single value of the daemon; None if it was never set."""
        return await self._requests.read(lambda connection: statements.get_meta(connection, f"user.{key}"))

    async def set_meta(self, key: str, value: str) -> None:
        """Write a single value of the daemon."""
        await self._requests.call(lambda connection: statements.set_meta(connection, f"user.{key}", value))


async def _decode(rows: Sequence[Any], reader: JobReader | None = None) -> tuple[list[StoredJob], list[Damage]]:
    """The jobs of these rows, and the damages. Many rows are decoded on a thread, to block neither loop nor writer."""
    reader = reader or JobReader()
    if len(rows) <= _DECODE_HERE:
        return reader.read(rows)
    return await asyncio.to_thread(reader.read, rows)
