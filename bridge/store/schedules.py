"""Schedules and crontabs in the store: rows, statements, and the port that the controller uses."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Connection, CursorResult, bindparam, delete, insert, select, update

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.errors import Conflict
from overspan.bridge.store.receipts import INSERT as _INSERT_RECEIPT
from overspan.bridge.store.records import Damage, Receipt
from overspan.bridge.store.requests import StoreRequests
from overspan.bridge.store.rows import read_json
from overspan.bridge.store.schedule_records import Crontab, ScheduleFacts, StoredSchedule
from overspan.bridge.store.sqlite_errors import Unreadable, unreadable
from overspan.bridge.store.tables import crontab, schedule

_INSERT = insert(schedule)
UPDATE = (
    update(schedule)
    .where(schedule.c.id == bindparam("key"), schedule.c.version == bindparam("expected_version"))
    .values(version=bindparam("version"), facts=bindparam("facts"))
)
"""Compare-and-set: writes a schedule's next facts if it has the expected version; see `changed_values`."""

CHANGED = "the schedule was changed by another request at the same time"

# As in `rows`: escapes non-ASCII, so that undecodable bytes survive.
_write = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


def changed_values(changed: StoredSchedule) -> dict[str, Any]:
    """The values of `UPDATE`; the record's version is the one to write, the stored one plus 1."""
    return {
        "key": changed.id,
        "expected_version": changed.version - 1,
        "version": changed.version,
        "facts": _write(encode(changed.facts)),
    }


def add(connection: Connection, new: StoredSchedule, receipt: Receipt | None = None) -> int:
    """Insert a schedule and its receipt; returns its id, which was never used before."""
    values = {
        "version": new.version,
        "user": new.user,
        "source": new.facts.source,
        "facts": _write(encode(new.facts)),
        "request": _write(dict(new.request)),
    }
    key = connection.execute(_INSERT, values).inserted_primary_key
    assert key is not None
    if receipt is not None:
        connection.execute(_INSERT_RECEIPT, receipt._replace(schedule_id=int(key[0]))._asdict())
    return int(key[0])


def change(connection: Connection, changed: StoredSchedule) -> bool:
    """Write the facts; False if the stored version is not the expected one."""
    result = cast("CursorResult[Any]", connection.execute(UPDATE, changed_values(changed)))
    return result.rowcount == 1


def remove(connection: Connection, schedule_id: int) -> bool:
    """Delete a schedule; False if there was none."""
    result = cast("CursorResult[Any]", connection.execute(delete(schedule).where(schedule.c.id == schedule_id)))
    return result.rowcount == 1


def read_all(connection: Connection) -> tuple[list[StoredSchedule], list[Damage]]:
    """Every schedule, by id, and the damages of rows that cannot be read."""
    found: list[StoredSchedule] = []
    damages: list[Damage] = []
    for row in connection.execute(select(schedule).order_by(schedule.c.id)):
        try:
            found.append(_stored(row))
        except Unreadable as error:
            damages.append(Damage(error.message))
    return found, damages


def read_crontab(connection: Connection, user: str) -> str | None:
    """The text of a user's crontab."""
    value = connection.scalar(select(crontab.c.text).where(crontab.c.user == user))
    return None if value is None else str(value)


def replace_crontab(connection: Connection, new: Crontab) -> list[int]:
    """Write a crontab with its entries, and delete the user's other entries; returns the entries' ids, in order.

    Raises Conflict if an entry that should stay was changed meanwhile.
    """
    kept = [entry.id for entry in new.entries if entry.id]
    others = delete(schedule).where(schedule.c.user == new.user, schedule.c.source == "crontab")
    connection.execute(others.where(schedule.c.id.not_in(kept)))
    connection.execute(delete(crontab).where(crontab.c.user == new.user))
    if new.text is not None:
        connection.execute(insert(crontab), {"user": new.user, "text": new.text})
    ids = []
    for entry in new.entries:
        if entry.id and not change(connection, entry):
            raise Conflict(CHANGED, remedy="try again")
        ids.append(entry.id or add(connection, entry))
    return ids


def _stored(row: Any) -> StoredSchedule:
    try:
        facts = decode(ScheduleFacts, read_json(row.facts))
        return StoredSchedule(row.id, row.version, row.user, facts, read_json(row.request))
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise unreadable(f"the schedule c{row.id}", error) from None


@dataclass(frozen=True)
class ScheduleStore:
    """The store's port for schedules and crontabs."""

    requests: StoreRequests

    async def load(self) -> list[StoredSchedule]:
        """Every schedule that can be read, by id."""
        return await self.requests.read_intact(read_all)

    async def add(self, new: StoredSchedule, receipt: Receipt | None = None) -> int:
        """Write a new schedule and the receipt of its submission; returns its id, which is never used again."""
        return await self.requests.call(lambda connection: add(connection, new, receipt))

    async def change(self, changed: StoredSchedule) -> bool:
        """Write a schedule's next facts; False if the stored version is not the one before."""
        return bool(await self.requests.call(lambda connection: int(change(connection, changed))))

    async def remove(self, schedule_id: int) -> bool:
        """Delete a schedule; False if there was none."""
        return bool(await self.requests.call(lambda connection: int(remove(connection, schedule_id))))

    async def read_crontab(self, user: str) -> str | None:
        """The text of a user's crontab; None if there is none."""
        return await self.requests.read(lambda connection: read_crontab(connection, user))

    async def replace_crontab(self, new: Crontab) -> list[int]:
        """Replace a user's crontab and its entries atomically; returns the entries' ids.

        Raises Conflict if an entry that should stay was changed meanwhile.
        """
        return await self.requests.call(lambda connection: replace_crontab(connection, new))
