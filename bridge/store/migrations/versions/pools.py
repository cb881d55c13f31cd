"""The table of pools."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0.3"
down_revision = "0.2"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make the table."""
    op.create_table(
        "pool",
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("user", sa.String(), nullable=False),
        sa.Column("facts", sa.Text(), nullable=False),
        sa.Column("request", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("name"),
    )


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")
