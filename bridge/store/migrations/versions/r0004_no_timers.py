"""Timers are of the daemon's memory alone: they are set again from the jobs at each start."""

from __future__ import annotations

from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Drop the table, which nothing was ever written to."""
    op.drop_table("timer")


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")
