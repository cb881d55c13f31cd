"""Accounts: what the history says of a job that is over, kept as it is sent."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; jobs that are over already have none, and are read from their facts."""
    # Copied, so that the table is the one that a fresh start makes.
    with op.batch_alter_table("job", recreate="always") as job:
        job.add_column(sa.Column("account", sa.LargeBinary(), nullable=True))


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")
