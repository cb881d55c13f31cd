"""The tables of the first release, made new or out of what the versions before it had left."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0.1"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make each table that is missing, and add to `job` the columns that it lacks."""
    present = set(sa.inspect(op.get_bind()).get_table_names())
    for name, create in _TABLES.items():
        if name not in present:
            create()
        elif name == "job":
            _complete_job()
    if "timer" in present:
        # Nothing was ever written to it: timers are set again from the jobs at each start.
        op.drop_table("timer")


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")


_LATER = (("array_id", sa.Integer()), ("account", sa.LargeBinary()))
"""Columns that came to `job` after its first version, each empty where it is added."""


def _complete_job() -> None:
    columns = {column["name"] for column in sa.inspect(op.get_bind()).get_columns("job")}
    missing = [(name, kind) for name, kind in _LATER if name not in columns]
    if not missing:
        return
    # Copied, so that the table is the one that a fresh start makes.
    with op.batch_alter_table("job", recreate="always") as job:
        for name, kind in missing:
            job.add_column(sa.Column(name, kind, nullable=True))
    if "array_id" not in columns:
        op.create_index("job_array", "job", ["array_id"])


def _create_job() -> None:
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        *_texts("state", "user", "name", "cluster", "handle", "native_id", "cursor"),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        *(sa.Column(name, kind, nullable=True) for name, kind in _LATER),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("job_window", "job", ["ended_at", "submitted_at", "user"])
    op.create_index("job_array", "job", ["array_id"])


def _create_spec() -> None:
    op.create_table(
        "spec",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        *_texts("cluster", "kind"),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("tries", sa.Integer(), nullable=False),
        sa.Column("next_try_at", sa.Float(), nullable=False),
        sa.Column("error", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sa.UniqueConstraint("token"),
        sqlite_autoincrement=True,
    )
    op.create_index("outbox_job", "outbox", ["job_id"])


def _create_timeline() -> None:
    op.create_table(
        "timeline",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        *_texts("start", "end", "reason", "cause"),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("timeline_job", "timeline", ["job_id", "seq"])


def _create_meta() -> None:
    op.create_table(
        "meta", *_texts("key"), sa.Column("value", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("key")
    )


def _create_schedule() -> None:
    op.create_table(
        "schedule",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        *_texts("user", "source"),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
        sqlite_autoincrement=True,
    )


def _create_crontab() -> None:
    op.create_table(
        "crontab", *_texts("user"), sa.Column("text", sa.Text(), nullable=False), sa.PrimaryKeyConstraint("user")
    )


def _create_receipt() -> None:
    op.create_table(
        "receipt",
        *_texts("token", "user"),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
    )


def _texts(*names: str) -> list[sa.Column[str]]:
    return [sa.Column(name, sa.String(), nullable=False) for name in names]


_TABLES = {
    "job": _create_job,
    "spec": _create_spec,
    "outbox": _create_outbox,
    "timeline": _create_timeline,
    "meta": _create_meta,
    "schedule": _create_schedule,
    "crontab": _create_crontab,
    "receipt": _create_receipt,
}
