"""The tables. A change here needs a migration in `migrations/versions`; a test compares the two.

Documents are JSON text. The spec has a table of its own, because SQLite rewrites whole rows, and facts change often but
the spec hardly ever.
"""

from __future__ import annotations

from sqlalchemy import Index, Text, UniqueConstraint
from sqlmodel import Field, SQLModel


class JobTable(SQLModel, table=True):
    """A job's facts, and the columns that queries need."""

    __tablename__ = "job"
    # One index serves the live jobs (ended_at IS NULL), time windows and retention.
    __table_args__ = (Index("job_window", "ended_at", "submitted_at", "user"), Index("job_array", "array_id"))

    id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    version: int
    state: str
    user: str
    name: str
    cluster: str
    handle: str
    native_id: str
    cursor: str
    priority: int | None
    submitted_at: float
    ended_at: float | None
    """Null while the job is live, even if an earlier run has ended."""
    facts: str = Field(sa_type=Text)
    array_id: int | None = None
    """The array that the job is an element of; the two share a spec."""
    account: bytes | None = None
    """The rows of an ended job for listings of the history, written by the controller; null for a live one."""


class SpecTable(SQLModel, table=True):
    """A job's spec, written again only by `scontrol update`; the elements of an array use their array's."""

    __tablename__ = "spec"

    job_id: int = Field(primary_key=True, sa_column_kwargs={"autoincrement": False})
    document: str = Field(sa_type=Text)


class OutboxTable(SQLModel, table=True):
    """The outbox: calls without an answer, oldest first by `seq`."""

    __tablename__ = "outbox"
    __table_args__ = (Index("outbox_job", "job_id"), {"sqlite_autoincrement": True})

    seq: int | None = Field(default=None, primary_key=True)
    token: str = Field(unique=True)
    job_id: int
    cluster: str
    kind: str
    payload: str = Field(sa_type=Text)
    created_at: float
    tries: int
    next_try_at: float
    error: str = Field(sa_type=Text)


class TimelineTable(SQLModel, table=True):
    """Every transition; `seq` is never used twice, so it serves as the position in the event stream."""

    __tablename__ = "timeline"
    __table_args__ = (Index("timeline_job", "job_id", "seq"), {"sqlite_autoincrement": True})

    seq: int | None = Field(default=None, primary_key=True)
    job_id: int
    task: str
    at: float
    start: str
    end: str
    reason: str
    cause: str
    text: str = Field(sa_type=Text)


class MetaTable(SQLModel, table=True):
    """Single values: format, epoch, next_id, last_seq; the daemon's own with the prefix `user.`, counters `count.`."""

    __tablename__ = "meta"

    key: str = Field(primary_key=True)
    value: str = Field(sa_type=Text)


class ScheduleTable(SQLModel, table=True):
    """Schedules; an id is never used twice. `request` is the repeated submission, including its secrets."""

    __tablename__ = "schedule"
    __table_args__ = ({"sqlite_autoincrement": True},)

    id: int | None = Field(default=None, primary_key=True)
    version: int
    user: str
    source: str
    facts: str = Field(sa_type=Text)
    request: str = Field(sa_type=Text)


class CrontabTable(SQLModel, table=True):
    """The text of each user's crontab."""

    __tablename__ = "crontab"

    user: str = Field(primary_key=True)
    text: str = Field(sa_type=Text)


class ReceiptTable(SQLModel, table=True):
    """The job or the schedule that a submission created, by the submission's idempotency key."""

    __tablename__ = "receipt"

    token: str = Field(primary_key=True)
    user: str
    at: float
    job_id: int
    schedule_id: int


class WatchTable(SQLModel, table=True):
    """What is evaluated of a job's checkpoints, an entry each; an id is never used twice."""

    __tablename__ = "watch"
    __table_args__ = (UniqueConstraint("job_id", "name"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    job_id: int
    name: str
    user: str
    closed: bool
    """Whether nothing is looked for any more, and all its evaluations are over."""
    facts: str = Field(sa_type=Text)


class EvaluationTable(SQLModel, table=True):
    """The evaluations of a watch: one for each checkpoint, version of it and run by hand."""

    __tablename__ = "evaluation"
    __table_args__ = (UniqueConstraint("watch_id", "checkpoint", "content", "run"), {"sqlite_autoincrement": True})

    id: int | None = Field(default=None, primary_key=True)
    watch_id: int
    checkpoint: str
    content: str
    """The version of the checkpoint's content; empty where its name alone counts."""
    run: int
    """0 for the one that the watch made; others were asked for by hand."""
    job_id: int
    """0 until it is submitted."""
    over: bool
    facts: str = Field(sa_type=Text)


class PoolTable(SQLModel, table=True):
    """Pools of workers. `request` is the submission of the pool's file, including its secrets."""

    __tablename__ = "pool"

    name: str = Field(primary_key=True)
    version: int
    user: str
    facts: str = Field(sa_type=Text)
    request: str = Field(sa_type=Text)


metadata = SQLModel.metadata
_NAMES = ("job", "spec", "outbox", "timeline", "meta", "schedule", "crontab", "receipt", "watch", "evaluation", "pool")
TABLES = tuple(metadata.tables[name] for name in _NAMES)
job, spec, outbox, timeline, meta, schedule, crontab, receipt, watch, evaluation, pool = TABLES
