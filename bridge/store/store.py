"""The store as the controller sees it: async, durable when it answers. Imports SQLAlchemy; for the daemon only.

Every method raises StoreFailed when the database fails (full disk, damage, no permission), and Conflict when another
daemon has taken it over; then nothing of the call is written. Cancelling the caller does not take a write back.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Iterable, Sequence
from typing import Any

from overspan.bridge.model.errors import Conflict, OverspanError
from overspan.bridge.store import receipts, statements
from overspan.bridge.store.connection import parse_target
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
from overspan.bridge.store.rows import RowBatch, alteration, clean, drawing, insertion, read_jobs
from overspan.bridge.store.schedule_records import StoredSchedule
from overspan.bridge.store.schedules import CHANGED, ScheduleMethods, changed_values
from overspan.bridge.store.sqlite_errors import LEFT, Unreadable
from overspan.bridge.store.writer import Call, StoreRequest, Writer

log = logging.getLogger(__name__)

_FORGET_AT_ONCE = 200
_DECODE_HERE = 20


class Store(ScheduleMethods):
    """Jobs, outbox, timeline, schedules and single values in one database, behind one writer thread."""

    def __init__(self, writer: Writer) -> None:
        self._writer = writer
        self._damages: dict[str, Damage] = {}

    @classmethod
    def open(cls, target: str | os.PathLike[str], *, exclusive: bool = True, wait: float = 5.0) -> Store:
        """Open or make the database at a path, ':memory:' or sqlite:// URL, and upgrade it. Blocks.

        `exclusive` keeps everybody else out for as long as it is open, and needs no shared memory (NFS).
        `wait` is how long, in seconds, to wait for another's lock. Raises StoreFailed; Conflict when it is in use.
        """
        writer = Writer(parse_target(target, exclusive=exclusive, wait=wait))
        writer.start()
        return cls(writer)

    def close(self) -> None:
        """Write what is queued and close. Blocks; a second call does nothing."""
        self._writer.stop()

    @property
    def last_seq(self) -> int:
        """The newest committed position of the event stream."""
        return self._writer.last_seq

    @property
    def trouble(self) -> OverspanError | None:
        """Why the last transaction failed; None when it went well."""
        return self._writer.trouble

    @property
    def damages(self) -> list[Damage]:
        """The rows that could not be read since the store was opened; they are left as they are."""
        return list(self._damages.values())

    def _set_aside(self, damages: Iterable[Damage]) -> None:
        for damage in damages:
            if damage.text not in self._damages:
                log.error("%s; it is left as it is", damage.text)
            self._damages[damage.text] = damage

    # --- jobs ---------------------------------------------------------------------------------------------------------

    async def next_ids(self, count: int) -> int:
        """Reserve `count` consecutive ids; the first of them. An id that a job has used is never given again."""
        if count < 1:
            raise ValueError("count must be at least 1")
        return self._writer.draw_ids(count)

    async def reserve_ids(self, end: int) -> bool:
        """Give no id below `end` any more; whether any of them was still to be given."""
        return self._writer.reserve_ids(end)

    async def insert(
        self, jobs: Sequence[NewJob], schedule: StoredSchedule | None = None, receipt: Receipt | None = None
    ) -> None:
        """Write new jobs with their outbox and timeline, the schedule they are a run of, the receipt: all or none.

        Conflict for an id or token that exists or a schedule that was changed, InvalidRequest for a value that no
        database can hold.
        """
        if not jobs:
            return
        atom = insertion(jobs)
        atom.schedules += [] if schedule is None else [changed_values(schedule)]
        atom.receipts += [] if receipt is None else [receipt._asdict()]
        self._writer.reserve_ids(max(new.job.id + max(1, len(new.job.tasks)) for new in jobs))
        if not all(await self._write((atom,))):
            raise Conflict(CHANGED, remedy="try again")

    async def apply(self, changes: Sequence[Change]) -> list[bool]:
        """Write each change whose job has the expected version; False where it had not, and nothing of that is written.

        Conflict when a token to add exists already; then none of the changes is written.
        """
        if not changes:
            return []
        result: list[bool] = await self._write(tuple(map(alteration, changes)))
        return result

    async def draw(self, elements: Sequence[NewJob], change: Change) -> bool:
        """Write an array's new elements and the array without them, all or none; False for another version."""
        self._writer.reserve_ids(max(new.job.id + 1 for new in elements))
        result: list[bool] = await self._write((drawing(elements, change),))
        return result[0]

    async def load_live(self) -> list[StoredJob]:
        """Every job that is not over and can be read, by id."""
        found, damages = await _decode(await self._read(statements.read_live))
        self._set_aside(damages)
        return found

    async def find(self, query: JobQuery) -> list[StoredJob]:
        """Ended and live jobs that fit, newest last. Raises Unreadable where all that have these ids are damaged."""
        found, damages = await _decode(await self._read(lambda connection: statements.find(connection, query)))
        self._set_aside(damages)
        if query.ids and damages and not found:
            raise Unreadable(damages[0].text, remedy=LEFT)
        return found

    async def find_ids(self, query: JobQuery) -> list[int]:
        """The jobs that fit, in the order of listings: newest last, an array's elements together and before it."""
        return await self._read(  # type: ignore[no-any-return]
            lambda connection: statements.find_ids(connection, query)
        )

    async def history_rows(self, ids: Sequence[int]) -> list[HistoryRows]:
        """What listings of the history need of these jobs, up to 30,000, in the order of listings."""
        return await self._read(  # type: ignore[no-any-return]
            lambda connection: statements.read_history_rows(connection, ids)
        )

    async def keep_history_rows(self, accounts: Sequence[tuple[int, int, bytes]]) -> None:
        """Keep what listings say of jobs that are over: (id, version, rows) each; others' are passed over."""
        await self._call(lambda connection: statements.keep_history_rows(connection, accounts))

    async def find_receipt(self, token: str, user: str) -> Receipt | None:
        """What was made of a user's submission; None where nothing was."""
        return await self._read(  # type: ignore[no-any-return]
            lambda connection: receipts.find(connection, token, user)
        )

    async def forget(self, before: float) -> int:
        """Delete jobs that ended before a time, unless they still owe a call, and old receipts; how many jobs."""
        total = 0
        while True:
            # Few at a time, so that submissions do not wait.
            count: int = await self._call(lambda connection: statements.forget(connection, before, _FORGET_AT_ONCE))
            total += count
            if count < _FORGET_AT_ONCE:
                return total

    async def withdraw(self, job_id: int) -> bool:
        """Delete a job that is over and owes no call, with its receipt; False where it is not so."""
        return bool(await self._call(lambda connection: int(statements.withdraw(connection, job_id))))

    # --- outbox -------------------------------------------------------------------------------------------------------

    async def outbox(self, cluster: str | None = None) -> list[OutboxRow]:
        """The calls owed to a cluster, or all, oldest first; also those whose next try is not due yet."""
        found, damages = await self._read(lambda connection: statements.read_outbox(connection, cluster))
        self._set_aside(damages)
        return found  # type: ignore[no-any-return]

    async def defer(self, token: str, next_try_at: float, error: str) -> bool:
        """Count a failed try; False when the call is not owed any more."""
        text = clean(error)
        done: int = await self._call(lambda connection: int(statements.defer(connection, token, next_try_at, text)))
        return bool(done)

    async def settle(self, tokens: Sequence[str]) -> int:
        """Strike out calls that were made and changed no job; how many were owed."""
        return await self._call(lambda connection: statements.settle(connection, tokens))  # type: ignore[no-any-return]

    # --- timeline and events ------------------------------------------------------------------------------------------

    async def timeline(self, job_id: int) -> list[TimelineRow]:
        """A job's transitions, oldest first."""
        return await self._read(  # type: ignore[no-any-return]
            lambda connection: statements.read_timeline(connection, job_id)
        )

    async def events(self, since: int, limit: int = 1000) -> list[TimelineRow]:
        """Transitions of all jobs behind position `since`, oldest first, at most `limit`."""
        return await self._read(  # type: ignore[no-any-return]
            lambda connection: statements.read_events(connection, since, limit)
        )

    # --- single values ------------------------------------------------------------------------------------------------

    async def meta(self, key: str) -> str | None:
        """A single value of the daemon's."""
        return await self._read(  # type: ignore[no-any-return]
            lambda connection: statements.get_meta(connection, f"user.{key}")
        )

    async def set_meta(self, key: str, value: str) -> None:
        """Write a single value of the daemon's."""
        await self._call(lambda connection: statements.set_meta(connection, f"user.{key}", value))

    # --- the way to the thread ----------------------------------------------------------------------------------------

    async def _write(self, atoms: tuple[RowBatch, ...]) -> Any:
        loop = asyncio.get_running_loop()
        return await self._queue(StoreRequest(loop, loop.create_future(), atoms=atoms))

    async def _call(self, call: Call) -> Any:
        loop = asyncio.get_running_loop()
        return await self._queue(StoreRequest(loop, loop.create_future(), call=call))

    async def _read(self, call: Call) -> Any:
        loop = asyncio.get_running_loop()
        return await self._queue(StoreRequest(loop, loop.create_future(), call=call, reads=True))

    async def _queue(self, unit: StoreRequest) -> Any:
        self._writer.put(unit)
        return await unit.answer


async def _decode(rows: Sequence[Any]) -> tuple[list[StoredJob], list[Damage]]:
    """The jobs of the rows, and the rows that are none; many are decoded beside the event loop and the writer."""
    if len(rows) <= _DECODE_HERE:
        return read_jobs(rows)
    return await asyncio.to_thread(read_jobs, rows)
