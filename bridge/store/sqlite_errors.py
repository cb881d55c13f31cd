"""Translates SQLite's errors to messages with a remedy (https://sqlite.org/rescode.html)."""

from __future__ import annotations

import sqlite3
from json import JSONDecodeError

from sqlalchemy.exc import DatabaseError, DBAPIError, OperationalError

from overspan.bridge.model.errors import Conflict, InvalidRequest, OverspanError, StoreFailed

LEFT = "the store was written by another version or is damaged; nothing was changed"
_NEWER = "use the Overspan that wrote it, or a newer one; the file was not touched"


def translate(error: BaseException, place: str) -> OverspanError:
    """The error to raise for any failure of the database at `place`. Always a new object."""
    if isinstance(error, OverspanError):
        return type(error)(error.message, remedy=error.remedy, place=error.place)
    original = error.orig if isinstance(error, DBAPIError) else error
    if isinstance(original, (sqlite3.ProgrammingError, sqlite3.InterfaceError, sqlite3.DataError)):
        return _unfit(original)
    if isinstance(original, sqlite3.Error):
        return _from_sqlite(original, place)
    if isinstance(original, OSError):
        return _from_system(original, place)
    if isinstance(original, (ValueError, OverflowError, TypeError)):
        return _unfit(original)
    return StoreFailed(f"the store {place} failed: {type(original).__name__}: {original}")


def is_fatal(error: BaseException) -> bool:
    """Whether the error concerns the database as a whole, and not one row of it."""
    if isinstance(error, OverspanError):
        return isinstance(error, StoreFailed)
    if isinstance(error, DBAPIError):
        # Full disk, lock and I/O are OperationalError; damage is a bare DatabaseError.
        return isinstance(error, OperationalError) or type(error) is DatabaseError
    return isinstance(error, (sqlite3.Error, OSError, MemoryError))


def newer(place: str, found: str) -> StoreFailed:
    """The error about a file that a later version has written."""
    return StoreFailed(f"the store {place} has a newer format ({found}) than this Overspan can read", remedy=_NEWER)


def foreign(place: str) -> StoreFailed:
    """The error about a database of another program."""
    return StoreFailed(f"{place} is a database, but not Overspan's", remedy="move it away or name another state folder")


class Unreadable(StoreFailed):
    """One row of the store cannot be read; the others can."""


def unreadable(what: str, error: BaseException) -> Unreadable:
    """The error about a damaged document. It omits Python's message, which may contain the user's secrets."""
    why = f"no JSON from character {error.pos} on" if isinstance(error, JSONDecodeError) else "not what Overspan writes"
    return Unreadable(
        f"{what} in the store cannot be read: {why}",
        remedy=LEFT,
    )


def _unfit(error: BaseException) -> InvalidRequest:
    return InvalidRequest(f"a value cannot be stored: {error}", remedy="mend the value; nothing was written")


def _from_sqlite(error: sqlite3.Error, place: str) -> OverspanError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return Conflict(
            f"the store {place} is in use by another process",
            remedy="end the other daemon (span shutdown), or use a state folder of its own (SPAN_STATE_DIR)",
        )
    if code == sqlite3.SQLITE_CONSTRAINT:
        return Conflict(f"it is in the store already ({error})", remedy="nothing of this request was written")
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        why = "the disk is full" if code == sqlite3.SQLITE_FULL else str(error)
        return StoreFailed(
            f"the store {place} could not be written: {why}",
            remedy="look at the free space, the quota and the file size limit there (df, quota, ulimit -f); "
            "nothing was written, and until there is room only cancels and signals take effect",
        )
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreFailed(
            f"the store {place} cannot be opened for writing: {error}",
            remedy="give yourself write permission on the file and its folder, or use another state folder "
            "(SPAN_STATE_DIR)",
        )
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return StoreFailed(
            f"the store {place} is damaged: {error}",
            remedy=f"end the daemon, keep a copy, and try: sqlite3 {place} .recover | sqlite3 mended.db",
        )
    return StoreFailed(f"the store {place} failed: {error}")


def _from_system(error: OSError, place: str) -> StoreFailed:
    return StoreFailed(
        f"the store {place} cannot be opened for writing: {error.strerror or error}",
        remedy="mend the folder's permissions or space, or use another state folder (SPAN_STATE_DIR)",
    )
