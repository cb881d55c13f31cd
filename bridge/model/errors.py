"""Errors, by what the caller can do about them.

Every layer raises these, the API turns them into HTTP answers and the commands into exit codes.

    OverspanError            the operation failed
     +- InvalidRequest       mend the input
     +- NotFound             name something that exists
     +- Denied               ask for the right
     +- Conflict             look at the present state and decide again
     +- Rejected             the cluster said no, in its own words
     +- Unreachable          try again later (transient)
     +- TimedOut             wait longer (transient)
     +- StoreFailed          mend the disk or the database; nothing was written
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple


class ExitCode(IntEnum):
    """Exit codes of Overspan's own commands; the verbs named like Slurm's use Slurm's."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    DENIED = 5
    TIMED_OUT = 124
    INTERRUPTED = 130


class Place(NamedTuple):
    """A position in a text the user wrote; line and column count from 1, 0 is unknown."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        parts = [self.file] + [str(number) for number in (self.line, self.column) if number]
        return ":".join(parts)


class OverspanError(Exception):
    """The operation failed."""

    code = "failed"
    exit_code: int = ExitCode.FAILED
    http_status = 500
    transient = False

    def __init__(self, message: str, *, remedy: str = "", place: Optional[Place] = None) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy
        self.place = place

    def __str__(self) -> str:
        located = f"{self.place}: {self.message}" if self.place else self.message
        return f"{located}\n  {self.remedy}" if self.remedy else located

    @property
    def line(self) -> str:
        """The error with its place and remedy in one line, for rows and logs."""
        return "; ".join(part.strip() for part in str(self).splitlines()).replace("?; ", "? ")

    def to_document(self) -> dict[str, Any]:
        """The error as the API sends it."""
        document: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.remedy:
            document["remedy"] = self.remedy
        if self.place:
            document["place"] = self.place._asdict()
        # Slurm's verbs end with codes of their own, which the code of the error does not tell.
        if self.exit_code != ERRORS.get(self.code, OverspanError).exit_code:
            document["exit_code"] = int(self.exit_code)
        return document


class InvalidRequest(OverspanError):
    """The input is wrong: a file, an option, an id, a body."""

    code = "invalid"
    exit_code: int = ExitCode.USAGE
    http_status = 400


class NotFound(OverspanError):
    """No such job, task, cluster or file."""

    code = "not_found"
    exit_code = ExitCode.NOT_FOUND
    http_status = 404


class Denied(OverspanError):
    """The caller may not do this."""

    code = "denied"
    exit_code = ExitCode.DENIED
    http_status = 403


class Conflict(OverspanError):
    """The job's present state does not allow it, or another write was first."""

    code = "conflict"
    exit_code = ExitCode.FAILED
    http_status = 409


class Rejected(OverspanError):
    """The cluster refused, in its own words."""

    code = "rejected"
    exit_code = ExitCode.FAILED
    http_status = 422


class Unreachable(OverspanError):
    """The daemon or a cluster does not answer; nothing is known to have failed."""

    code = "unreachable"
    exit_code = ExitCode.UNREACHABLE
    http_status = 503
    transient = True


class TimedOut(OverspanError):
    """The wait was over before the thing waited for."""

    code = "timed_out"
    exit_code = ExitCode.TIMED_OUT
    http_status = 504
    transient = True


class StoreFailed(OverspanError):
    """The state could not be written; the request was refused as a whole."""

    code = "store_failed"
    exit_code = ExitCode.FAILED
    http_status = 507


ERRORS: dict[str, type[OverspanError]] = {
    kind.code: kind
    for kind in (
        OverspanError,
        InvalidRequest,
        NotFound,
        Denied,
        Conflict,
        Rejected,
        Unreachable,
        TimedOut,
        StoreFailed,
    )
}


def error_from_document(document: dict[str, Any]) -> OverspanError:
    """Rebuild the error that `to_document` wrote; an unknown code becomes the base class."""
    place = document.get("place")
    kind = ERRORS.get(str(document.get("code")), OverspanError)
    error = kind(
        str(document.get("message", "the operation failed")),
        remedy=str(document.get("remedy", "")),
        place=Place(**place) if place else None,
    )
    if "exit_code" in document:
        error.exit_code = int(document["exit_code"])
    return error
