"""Opens the database: files and their modes, SQLite's settings, the schema, the fencing epoch."""

from __future__ import annotations

import os
import sqlite3
import stat
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import URL, Connection, Engine, NullPool, create_engine

from overspan.bridge.model.errors import Conflict, InvalidRequest, StoreFailed
from overspan.bridge.store import schema, statements

MEMORY = ":memory:"


@dataclass(frozen=True)
class DatabaseTarget:
    """A database to open: a path or ':memory:'; `wait` are the seconds to wait for another process's lock."""

    path: str
    exclusive: bool = True
    wait: float = 5.0


@dataclass
class Session:
    """The one open connection, owned by the writer's thread, and the counters that were read when it was opened."""

    place: str
    engine: Engine
    connection: Connection
    raw: sqlite3.Connection
    epoch: int = 0
    next_id: int = 1
    last_seq: int = 0

    def execute(self, words: str) -> None:
        """Send a command of transaction control, or a PRAGMA."""
        self.connection.exec_driver_sql(words)

    def begin(self) -> None:
        """Begin a transaction that may write. It takes the lock now, so that the commit never waits for it."""
        self.execute("BEGIN IMMEDIATE")

    def commit(self) -> None:
        """Make the transaction durable; if that fails, it stays open."""
        self.execute("COMMIT")

    def rollback(self) -> None:
        """Roll the transaction back, unless SQLite has done so itself (as it does on a full disk)."""
        if self.raw.in_transaction:
            self.execute("ROLLBACK")

    def check_epoch(self) -> None:
        """Fencing: raise Conflict if a later daemon has opened the store. Called in each transaction that writes."""
        if statements.get_meta(self.connection, "epoch") != str(self.epoch):
            raise Conflict(
                f"another daemon has taken over the store {self.place}",
                remedy="this daemon must end; ask the other one",
            )

    def close(self) -> None:
        """Close the database; SQLite's last connection moves the WAL into it."""
        self.connection.close()
        self.engine.dispose()


def parse_target(target: str | os.PathLike[str], *, exclusive: bool, wait: float) -> DatabaseTarget:
    """The database that a path or URL names. Raises InvalidRequest for an unsupported kind of database."""
    text = os.fspath(target)
    scheme, separator, rest = text.partition("://")
    if separator and scheme != "sqlite":
        raise InvalidRequest(
            f"the store cannot be a {scheme} database", remedy="write a path, or sqlite:////absolute/path"
        )
    path = rest.removeprefix("/") if separator else text
    return DatabaseTarget(path if path == MEMORY else os.path.abspath(path or MEMORY), exclusive, wait)


def connect(target: DatabaseTarget) -> Session:
    """Open the database, create or upgrade its tables, and start a new epoch. Must run in the thread that will use it.

    Raises StoreFailed, Conflict if another process holds it, or SQLite's own errors.
    """
    if target.path != MEMORY:
        _prepare_files(Path(target.path))
    engine = create_engine(
        URL.create("sqlite", database=target.path),
        poolclass=NullPool,
        # Only Session begins and ends transactions, so that one that SQLite rolled back itself is never continued.
        isolation_level="AUTOCOMMIT",
        connect_args={"timeout": target.wait},
    )
    connection = engine.connect()
    raw = connection.connection.driver_connection
    assert isinstance(raw, sqlite3.Connection)
    # SQLite's error about a text that is not UTF-8 would contain the text, with the user's secrets.
    raw.text_factory = partial(str, encoding="utf-8", errors="surrogateescape")
    session = Session(target.path, engine, connection, raw)
    try:
        _set_up(session, target)
        _prepare(session)
    except BaseException:
        session.close()
        raise
    return session


def _set_up(session: Session, target: DatabaseTarget) -> None:
    if target.exclusive:
        # Before the first access: WAL then keeps its index in memory, and no shared memory is mapped (NFS).
        session.execute("PRAGMA locking_mode=EXCLUSIVE")
    mode = session.connection.exec_driver_sql("PRAGMA journal_mode=WAL").scalar()
    if mode != "wal" and target.path != MEMORY:
        raise StoreFailed(f"the store {target.path} cannot keep a write-ahead log here (journal mode {mode})")
    # With WAL only FULL makes each commit durable against power loss.
    session.execute("PRAGMA synchronous=FULL")
    session.execute("PRAGMA temp_store=MEMORY")
    session.execute("PRAGMA journal_size_limit=16777216")


def _prepare(session: Session) -> None:
    session.begin()
    try:
        schema.prepare(session.connection, session.place)
        connection = session.connection
        session.epoch = statements.read_count(statements.get_meta(connection, "epoch")) + 1
        statements.set_meta(connection, "epoch", str(session.epoch))
        session.next_id = statements.free_id(connection)
        session.last_seq = statements.highest_seq(connection)
        session.commit()
    except BaseException:
        session.rollback()
        raise


def _prepare_files(path: Path) -> None:
    """Make the folder 0700 and the file 0600 before SQLite opens them.

    An existing file is not opened here: closing any descriptor of it would release the locks that this process may hold
    on it through SQLite (fcntl(2)).
    """
    folder = path.parent
    if not folder.is_dir():
        folder.mkdir(mode=0o700, parents=True)
    mode = folder.stat().st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX:
        raise StoreFailed(
            f"the folder {folder} can be written by others (mode {stat.S_IMODE(mode):04o})",
            remedy=f"chmod 700 {folder}",
        )
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        pass
    for needed in (folder, path):
        # SQLite would report some of these as an I/O error.
        if not os.access(needed, os.R_OK | os.W_OK):
            raise StoreFailed(
                f"the store {path} cannot be opened for writing: {needed} is read-only for you, or its file system is",
                remedy=f"look at: ls -ld {needed}; or use another state folder (SPAN_STATE_DIR)",
            )
    for file in (path, Path(f"{path}-wal"), Path(f"{path}-shm")):
        if file.exists() and file.stat().st_mode & 0o077:
            file.chmod(0o600)
