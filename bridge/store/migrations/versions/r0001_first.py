"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "job",
        sa.Column("id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        *(
            sa.Column(name, sa.String(), nullable=False)
            for name in ("state", "user", "name", "cluster", "handle", "native_id", "cursor")
        ),
        sa.Column("priority", sa.Integer(), nullable=True),
        sa.Column("submitted_at", sa.Float(), nullable=False),
        sa.Column("ended_at", sa.Float(), nullable=True),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("job_window", "job", ["ended_at", "submitted_at", "user"])
    op.create_table(
        "spec",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id"),
    )
    _create_outbox()
    op.create_table(
        "timer",
        sa.Column("job_id", sa.Integer(), autoincrement=False, nullable=False),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("due", sa.Float(), nullable=False),
        sa.Column("payload", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("job_id", "name"),
    )
    _create_timeline()
    op.create_table(
        "meta",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )


def _create_outbox() -> None:
    op.create_table(
        "outbox",
        sa.Column("seq", sa.Integer(), nullable=False),
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("cluster", sa.String(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
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
        *(sa.Column(name, sa.String(), nullable=False) for name in ("start", "end", "reason", "cause")),
        sa.Column("text", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("seq"),
        sqlite_autoincrement=True,
    )
    op.create_index("timeline_job", "timeline", ["job_id", "seq"])


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")
