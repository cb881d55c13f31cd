"""Elements of arrays: jobs that have their array's spec."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column; every job so far has a spec of its own."""
    # Copied, so that the table is the one that a fresh start makes.
    with op.batch_alter_table("job", recreate="always") as job:
        job.add_column(sa.Column("array_id", sa.Integer(), nullable=True))
    op.create_index("job_array", "job", ["array_id"])


def downgrade() -> None:
    """Refused: an older Overspan must not open a newer store."""
    raise NotImplementedError("the store is only ever upgraded")
