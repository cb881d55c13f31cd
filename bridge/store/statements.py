"""The store's statements, as SQLAlchemy Core on the tables; run only by the writer thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from sqlalchemy import (
    Connection,
    CursorResult,
    Executable,
    Select,
    bindparam,
    delete,
    func,
    insert,
    select,
    union_all,
    update,
)

from overspan.bridge.model.storage import MountMode
from overspan.bridge.store.receipts import INSERT as _INSERT_RECEIPT
from overspan.bridge.store.records import Damage, HistoryRows, JobQuery, OutboxRow, TimelineRow
from overspan.bridge.store.rows import Row, RowBatch, outbox_row, timeline_row
from overspan.bridge.store.schedules import UPDATE as _UPDATE_SCHEDULE
from overspan.bridge.store.sqlite_errors import Unreadable
from overspan.bridge.store.tables import job, meta, outbox, receipt, spec, timeline

_INSERT_JOB, _INSERT_SPEC = insert(job), insert(spec)
_AMEND = update(spec).where(spec.c.job_id == bindparam("key")).values(document=bindparam("amended"))
_INSERT_OUTBOX, _INSERT_TIMELINE = insert(outbox), insert(timeline)
_DONE = delete(outbox).where(outbox.c.token == bindparam("key"))
_UPDATE_JOB = (
    update(job)
    .where(job.c.id == bindparam("key"), job.c.version == bindparam("expected_version"))
    .values(
        **{
            name: bindparam(name)
            for name in ("version", "state", "priority", "submitted_at", "ended_at", "facts", "account")
        },
        **{
            name: func.coalesce(bindparam(f"new_{name}"), job.c[name])
            for name in ("cluster", "handle", "native_id", "cursor")
        },
    )
)
_DEFER = (
    update(outbox)
    .where(outbox.c.token == bindparam("key"))
    .values(tries=outbox.c.tries + 1, next_try_at=bindparam("due"), error=bindparam("why"))
)
_META_GET = select(meta.c.value).where(meta.c.key == bindparam("key"))
_META_SET = update(meta).where(meta.c.key == bindparam("meta_key")).values(value=bindparam("value"))
_META_ADD = insert(meta)

_SPEC_ID = func.coalesce(job.c.array_id, job.c.id)
_FACTS = [column for column in job.c if column is not job.c.account]
_JOBS = select(*_FACTS, spec.c.document).join_from(job, spec, spec.c.job_id == _SPEC_ID, isouter=True)
_LIVE = select(job.c.id).where(job.c.ended_at.is_(None)).order_by(job.c.id)
# The elements of an array come together, followed by the array itself with its waiting elements.
_IN_LISTS = (func.coalesce(job.c.array_id, job.c.id), job.c.array_id.is_(None), job.c.id)
_ACCOUNTS = select(job.c.id, job.c.array_id, job.c.cluster, job.c.handle, job.c.account).order_by(*_IN_LISTS)
_KEEP = (
    update(job)
    .where(job.c.id == bindparam("key"), job.c.version == bindparam("expected"))
    .values(account=bindparam("rows"))
)
_WRITES = MountMode.MOUNT_CACHED.value
_TIMELINE = select(
    *(timeline.c[name] for name in ("seq", "job_id", "task", "at", "start", "end", "reason", "cause", "text"))
)


def write(connection: Connection, batch: RowBatch) -> bool:
    """Write a batch. Returns False, with some rows written, if a job or schedule did not have the expected version."""
    if batch.schedules and _many(connection, _UPDATE_SCHEDULE, batch.schedules) != len(batch.schedules):
        return False
    _many(connection, _INSERT_JOB, batch.jobs)
    _many(connection, _INSERT_SPEC, batch.specs)
    if batch.updates and _many(connection, _UPDATE_JOB, batch.updates) != len(batch.updates):
        return False
    _many(connection, _AMEND, batch.amended)
    _many(connection, _DONE, batch.outbox_done)
    _many(connection, _INSERT_OUTBOX, batch.outbox_add)
    _many(connection, _INSERT_TIMELINE, batch.timeline)
    _many(connection, _INSERT_RECEIPT, batch.receipts)
    return True


def _many(connection: Connection, statement: Executable, rows: list[Row]) -> int:
    if not rows:
        return 0
    result = cast("CursorResult[Any]", connection.execute(statement, rows))
    return int(result.rowcount)


def find_live(connection: Connection) -> list[int]:
    """The ids of every live job, in their order."""
    return list(connection.scalars(_LIVE))


def read_jobs(connection: Connection, ids: Sequence[int]) -> Sequence[Any]:
    """Rows for `rows.JobReader`: these jobs, by id."""
    return connection.execute(_JOBS.where(job.c.id.in_(ids)).order_by(job.c.id)).all()


def find(connection: Connection, query: JobQuery) -> Sequence[Any]:
    """Rows for `rows.stored_job`: the jobs that match, newest last."""
    chosen = _chosen(query).subquery()
    statement = _JOBS.where(job.c.id.in_(select(chosen.c.id))).order_by(job.c.id)
    return connection.execute(statement).all()


def find_ids(connection: Connection, query: JobQuery) -> list[int]:
    """The jobs that match, in the order of listings: newest last, the elements of an array together and before it."""
    chosen = _chosen(query).subquery()
    return list(connection.scalars(select(job.c.id).where(job.c.id.in_(select(chosen.c.id))).order_by(*_IN_LISTS)))


def read_history_rows(connection: Connection, ids: Sequence[int]) -> list[HistoryRows]:
    """The history rows of these jobs, in the order of listings."""
    return [HistoryRows(*row) for row in connection.execute(_ACCOUNTS.where(job.c.id.in_(ids)))]


def keep_history_rows(connection: Connection, accounts: Sequence[tuple[int, int, bytes]]) -> None:
    """Write history rows of jobs, each if its job has that version."""
    _many(connection, _KEEP, [{"key": key, "expected": version, "rows": rows} for key, version, rows in accounts])


def _chosen(query: JobQuery) -> Select[Any]:
    """The ids that match, read from the index of the window if the query allows it."""
    live = select(job.c.id).where(job.c.ended_at.is_(None))
    ended = select(job.c.id).where(job.c.ended_at.is_not(None))
    if query.since is not None:
        ended = ended.where(job.c.ended_at >= query.since)
    parts = [part for part, wanted in ((live, query.over is not True), (ended, query.over is not False)) if wanted]
    windowed = query.since is not None or query.until is not None or query.over is not None
    if not windowed:
        parts = [select(job.c.id)]
    elif not query.ids and not query.arrays:
        # Without the hint SQLite scans all rows by id, to avoid a sort.
        parts = [part.with_hint(job, "INDEXED BY job_window", "sqlite") for part in parts]
    parts = [_filtered(part, query) for part in parts]
    union = (parts[0] if len(parts) == 1 else union_all(*parts)).subquery()
    statement = select(union.c.id)
    return statement if query.limit is None else statement.order_by(union.c.id.desc()).limit(query.limit)


def _filtered(statement: Select[Any], query: JobQuery) -> Select[Any]:
    lists: tuple[tuple[str, Sequence[Any]], ...] = (
        ("id", query.ids),
        ("array_id", query.arrays),
        ("user", query.users),
        ("name", query.names),
        ("state", query.states),
        ("cluster", query.clusters),
    )
    for name, values in lists:
        if values:
            statement = statement.where(job.c[name].in_(values))
    if query.writes:
        own = select(spec.c.job_id).where(spec.c.job_id == _SPEC_ID, spec.c.document.contains(_WRITES))
        statement = statement.where(own.exists())
    return statement if query.until is None else statement.where(job.c.submitted_at < query.until)


def read_outbox(connection: Connection, cluster: str | None) -> tuple[list[OutboxRow], list[Damage]]:
    """The outbox of a cluster, or of all, oldest first, and the damages of rows that cannot be read."""
    statement = select(outbox).order_by(outbox.c.seq)
    if cluster is not None:
        statement = statement.where(outbox.c.cluster == cluster)
    found: list[OutboxRow] = []
    damages: list[Damage] = []
    for row in connection.execute(statement):
        try:
            found.append(outbox_row(row))
        except Unreadable as error:
            damages.append(Damage(error.message, row.job_id, cluster=str(row.cluster)))
    return found, damages


def defer(connection: Connection, token: str, due: float, error: str) -> bool:
    """Count a failed try of a call; False if it is no longer in the outbox."""
    return _many(connection, _DEFER, [{"key": token, "due": due, "why": error}]) == 1


def settle(connection: Connection, tokens: Sequence[str]) -> int:
    """Remove calls from the outbox; returns how many there were."""
    return _many(connection, _DONE, [{"key": token} for token in tokens])


def read_timeline(connection: Connection, job_id: int) -> list[TimelineRow]:
    """A job's transitions, oldest first."""
    statement = _TIMELINE.where(timeline.c.job_id == job_id).order_by(timeline.c.seq)
    return [timeline_row(row) for row in connection.execute(statement)]


def read_events(connection: Connection, since: int, limit: int) -> list[TimelineRow]:
    """Transitions of all jobs after a position, oldest first."""
    statement = _TIMELINE.where(timeline.c.seq > since).order_by(timeline.c.seq).limit(limit)
    return [timeline_row(row) for row in connection.execute(statement)]


def forget(connection: Connection, before: float, count: int) -> int:
    """Delete old receipts, and up to `count` jobs that ended before a time and have no call in the outbox.

    Returns the number of jobs.
    """
    connection.execute(delete(receipt).where(receipt.c.at < before))
    owed = select(outbox.c.token).where(outbox.c.job_id == job.c.id).exists()
    element = job.alias()
    # An array stays as long as its elements, which use its spec.
    used = select(element.c.id).where(element.c.array_id == job.c.id).exists()
    chosen = select(job.c.id).where(job.c.ended_at < before, ~owed, ~used).order_by(job.c.ended_at).limit(count)
    ids = list(connection.scalars(chosen))
    if ids:
        _delete(connection, ids)
    return len(ids)


def withdraw(connection: Connection, job_id: int) -> bool:
    """Delete an ended job without a call in the outbox, and its receipt; False, with nothing deleted, for any other."""
    owed = select(outbox.c.token).where(outbox.c.job_id == job.c.id).exists()
    chosen = select(job.c.id).where(job.c.id == job_id, job.c.ended_at.is_not(None), ~owed)
    if connection.scalar(chosen) is None:
        return False
    _delete(connection, [job_id])
    connection.execute(delete(receipt).where(receipt.c.job_id == job_id))
    return True


def _delete(connection: Connection, ids: Sequence[int]) -> None:
    # Stored, so that positions of deleted rows are not used again after a restart.
    set_meta(connection, "last_seq", str(highest_seq(connection)))
    for table, column in ((job, "id"), (spec, "job_id"), (timeline, "job_id")):
        connection.execute(delete(table).where(table.c[column].in_(ids)))


def get_meta(connection: Connection, key: str) -> str | None:
    """A single value; None if it was never set."""
    value = connection.scalar(_META_GET, {"key": key})
    return None if value is None else str(value)


def set_meta(connection: Connection, key: str, value: str) -> None:
    """Write a single value."""
    if _many(connection, _META_SET, [{"meta_key": key, "value": value}]) == 0:
        _many(connection, _META_ADD, [{"key": key, "value": value}])


def highest_seq(connection: Connection) -> int:
    """The newest position of the event stream."""
    present = connection.scalar(select(func.max(timeline.c.seq))) or 0
    return max(int(present), read_count(get_meta(connection, "last_seq")))


def free_id(connection: Connection) -> int:
    """The lowest id that was never used."""
    recorded = read_count(get_meta(connection, "next_id"))
    return max(recorded, int(connection.scalar(select(func.max(job.c.id))) or 0) + 1)


def read_count(text: str | None) -> int:
    """A number stored as a single value; 0 for a damaged one, because the callers compare it with the rows."""
    return int(text) if text is not None and text.isascii() and text.isdecimal() else 0
