"""Receipts: what was made of a submission, by its token, so that one that is sent again is known."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "receipt",
        sa.Column("token", sa.String(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("at", sa.Float(), nullable=False),
        sa.Column("job_id", sa.Integer(), nullable=False),
        sa.Column("schedule_id", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("token"),
    )


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")
