"""The tables. A change here needs a migration in `migrations/versions`; a test compares the two.

Documents are JSON text. The spec has a table of its own because SQLite rewrites a whole row on each update, and facts
change often while the spec hardly ever does.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Float, Index, Integer, LargeBinary, MetaData, String, Table, Text

metadata = MetaData()


def _given(name: str) -> Column[int]:
    """A number that is the row's key and given by whoever inserts it."""
    return Column(name, Integer, primary_key=True, autoincrement=False)


def _drawn(name: str) -> Column[int]:
    """A number that is the row's key and drawn by the database; with `sqlite_autoincrement` never used twice."""
    return Column(name, Integer, primary_key=True)


def _word(name: str, **options: Any) -> Column[str]:
    return Column(name, String, nullable=False, **options)


def _text(name: str) -> Column[str]:
    return Column(name, Text, nullable=False)


def _number(name: str, *, optional: bool = False) -> Column[int]:
    return Column(name, Integer, nullable=optional)


def _time(name: str, *, optional: bool = False) -> Column[float]:
    return Column(name, Float, nullable=optional)


job = Table(
    "job",
    metadata,
    _given("id"),
    _number("version"),
    _word("state"),
    _word("user"),
    _word("name"),
    _word("cluster"),
    _word("handle"),
    _word("native_id"),
    _word("cursor"),
    _number("priority", optional=True),
    _time("submitted_at"),
    # Null while the job is not over, whatever earlier runs of it did.
    _time("ended_at", optional=True),
    _text("facts"),
    # The array that the job is an element of; the two share a spec.
    _number("array_id", optional=True),
    # What listings of the history say of a job that is over, as the controller wrote it; null otherwise.
    Column("account", LargeBinary, nullable=True),
    # One index serves the live jobs (ended_at IS NULL), time windows and retention.
    Index("job_window", "ended_at", "submitted_at", "user"),
    Index("job_array", "array_id"),
)
"""A job's facts, and the columns that queries need."""

spec = Table("spec", metadata, _given("job_id"), _text("document"))
"""A job's spec, written again only by `scontrol update`; the elements of an array have their array's."""

outbox = Table(
    "outbox",
    metadata,
    _drawn("seq"),
    _word("token", unique=True),
    _number("job_id"),
    _word("cluster"),
    _word("kind"),
    _text("payload"),
    _time("created_at"),
    _number("tries"),
    _time("next_try_at"),
    _text("error"),
    Index("outbox_job", "job_id"),
    sqlite_autoincrement=True,
)
"""Calls that are owed, oldest first by `seq`."""

timeline = Table(
    "timeline",
    metadata,
    _drawn("seq"),
    _number("job_id"),
    _word("task"),
    _time("at"),
    _word("start"),
    _word("end"),
    _word("reason"),
    _word("cause"),
    _text("text"),
    Index("timeline_job", "job_id", "seq"),
    sqlite_autoincrement=True,
)
"""Every transition; `seq` is never used twice, so it is also the event stream's position."""

meta = Table("meta", metadata, _word("key", primary_key=True), _text("value"))
"""Single values: format, epoch, next_id, last_seq; the daemon's own under `user.`, counters under `count.`."""

schedule = Table(
    "schedule",
    metadata,
    _drawn("id"),
    _number("version"),
    _word("user"),
    _word("source"),
    _text("facts"),
    _text("request"),
    sqlite_autoincrement=True,
)
"""Schedules; an id is never used twice. `request` is the submission that is repeated, its secrets included."""

crontab = Table("crontab", metadata, _word("user", primary_key=True), _text("text"))
"""The text of each user's crontab."""

receipt = Table(
    "receipt",
    metadata,
    _word("token", primary_key=True),
    _word("user"),
    _time("at"),
    _number("job_id"),
    _number("schedule_id"),
)
"""The job or the schedule that was made of a submission, by the token it came with."""
