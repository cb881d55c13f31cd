"""The schema's version: checked at each start, upgraded by alembic, which is imported only for that."""

from __future__ import annotations

from sqlalchemy import (
    Column,
    Connection,
    MetaData,
    PrimaryKeyConstraint,
    String,
    Table,
    delete,
    insert,
    inspect,
    select,
)

from overspan.bridge.store import statements
from overspan.bridge.store.migrations import BEFORE, REVISIONS
from overspan.bridge.store.sqlite_errors import foreign, newer
from overspan.bridge.store.tables import TABLES

FORMAT = 1
"""Format number of the documents in the tables; a version reads its own and the one before."""

# Equal to alembic's own table (alembic.ddl.impl.DefaultImpl.version_table_impl).
_VERSION = Table(
    "alembic_version",
    MetaData(),
    Column("version_num", String(32), nullable=False),
    PrimaryKeyConstraint("version_num", name="alembic_version_pkc"),
)


def prepare(connection: Connection, place: str) -> None:
    """Create, check or upgrade the tables inside the caller's transaction. Raises StoreFailed for an unknown format."""
    names = set(inspect(connection).get_table_names())
    if not names:
        _create(connection)
        return
    if _VERSION.name not in names:
        raise foreign(place)
    version = connection.scalar(select(_VERSION.c.version_num))
    if version is not None and version not in REVISIONS and version not in BEFORE:
        raise newer(place, f"schema {version}")
    if version in BEFORE:
        # Without the row, alembic runs all revisions.
        connection.execute(delete(_VERSION))
    if version != REVISIONS[-1]:
        upgrade(connection)
    _check_format(connection, place)


def upgrade(connection: Connection) -> None:
    """Run the missing migrations inside the caller's transaction."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "overspan.bridge.store:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def _create(connection: Connection) -> None:
    metadata = TABLES[0].metadata
    metadata.create_all(connection, tables=TABLES, checkfirst=False)
    _VERSION.create(connection, checkfirst=False)
    connection.execute(insert(_VERSION), {"version_num": REVISIONS[-1]})
    statements.set_meta(connection, "format", str(FORMAT))


def _check_format(connection: Connection, place: str) -> None:
    found = statements.get_meta(connection, "format")
    if found is None:
        statements.set_meta(connection, "format", str(FORMAT))
    elif not found.isdigit() or int(found) > FORMAT:
        raise newer(place, f"format {found}")
