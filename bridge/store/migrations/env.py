"""Run by alembic: migrate over the connection that `schema.upgrade` gives, inside its transaction."""

from __future__ import annotations

from alembic import context

from overspan.bridge.store.tables import metadata

# No transactions of alembic's own: the store's, around all steps, makes the upgrade one piece.
context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=metadata,
    render_as_batch=True,
    transactional_ddl=False,
)
context.run_migrations()
