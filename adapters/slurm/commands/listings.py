"""The format of Slurm's listings: fields and records that end with control characters, times as seconds.

The users' own text (names, comments, submit lines) may hold blanks, bars and line breaks, so fields end with the unit
separator and records with the record separator. Records with a wrong number of fields are counted and left out.
"""

from __future__ import annotations

import calendar
import re
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from overspan.bridge.model.durations import parse_time_limit

FIELD_END = "\x1f"
RECORD_END = "\x1e"

ENVIRONMENT = ("SLURM_TIME_FORMAT=%s", "SLURM_BITSTR_LEN=0", "LC_ALL=C")
"""Variables of every query: times as seconds since 1970 in place of the site's local time, array indices in full."""
UNWANTED = (
    "SQUEUE_STATES",
    "SQUEUE_PARTITION",
    "SQUEUE_USERS",
    "SACCT_FEDERATION",
    "SQUEUE_FEDERATION",
    "SLURM_CLUSTERS",
)
"""Variables of the user that would filter the answer."""

_MISSING = ("", "n/a", "unknown", "none", "(null)", "not_set", "invalid", "partition_limit")
_STAMP = re.compile(r"(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)")


class ParsedListing(NamedTuple):
    """The records of a listing, each with the fields that were asked for, and how many could not be read."""

    records: tuple[tuple[str, ...], ...]
    unreadable: int = 0
    torn: bool = False
    """Whether it ends in the middle of a record. Then a job that it lacks may still exist."""


def ask(*words: str) -> tuple[str, ...]:
    """The command of a query with the variables that it needs, set by env(1), so that the login shell may be any."""
    removed = [word for name in UNWANTED for word in ("-u", name)]
    return ("env", *removed, *ENVIRONMENT, *words)


def join_format(fields: Sequence[str]) -> str:
    """The -O value of squeue and sinfo for these fields, each in full and ended by a separator.

    The suffix form exists from Slurm 19.05 on (squeue(1), --Format).
    """
    *front, last = fields
    return ",".join([*(f"{name}:{FIELD_END}" for name in front), f"{last}:{RECORD_END}"])


def split_records(text: str, count: int) -> ParsedListing:
    """Split an answer of squeue or sinfo into records of `count` fields; a last one that is cut off is unreadable."""
    return _split(text, f"{RECORD_END}\n", count)


def split_parsable(text: str, count: int) -> ParsedListing:
    """Split an answer of `sacct -p --delimiter`, where fields end with the separator and records with a line break."""
    return _split(text, f"{FIELD_END}\n", count)


def _split(text: str, end: str, count: int) -> ParsedListing:
    *whole, rest = text.split(end)
    # The last field is the user's own text, which may contain the separator.
    records = [tuple(record.split(FIELD_END, count - 1)) for record in whole]
    readable = tuple(record for record in records if len(record) == count)
    # The end may also be a message of the login shell; a record begins with a number.
    torn = FIELD_END in rest or rest.strip()[:1].isdigit()
    return ParsedListing(readable, len(records) - len(readable) + bool(rest.strip()), torn)


def read_text(text: str) -> str:
    """A text; empty for Slurm's words for none."""
    stripped = text.strip()
    return "" if stripped.lower() in ("(null)", "n/a", "none", "none assigned") else stripped


def read_number(text: str) -> int | None:
    """A whole number; None where there is none."""
    match = re.fullmatch(r"\s*(-?\d{1,18})\s*", text)
    return int(match[1]) if match else None


def read_time(text: str) -> float | None:
    """A point in time: seconds since 1970, or YYYY-MM-DDTHH:MM:SS in this machine's zone; None for N/A and Unknown."""
    word = text.strip()
    if word.isascii() and word.isdigit() and len(word) <= 12:
        # Slurm writes 0 for an unknown time.
        return float(word) or None
    match = _STAMP.fullmatch(word)
    if match is None:
        return None
    parts = [int(part) for part in match.groups()]
    try:
        calendar.timegm((*parts, 0, 0, 0))
        return time.mktime((*parts, 0, 0, -1))  # type: ignore[arg-type]
    except (ValueError, OverflowError):
        return None


class TimeLimit(NamedTuple):
    """A time limit in seconds, None for no limit; `known` is False where Slurm does not show one."""

    seconds: int | None
    known: bool = True


def read_limit(text: str) -> TimeLimit:
    """A time limit: UNLIMITED is None seconds; N/A, INVALID and Partition_Limit are unknown."""
    word = text.strip()
    if word.lower() in _MISSING:
        return TimeLimit(None, False)
    try:
        return TimeLimit(parse_time_limit(word))
    except ValueError:
        return TimeLimit(None, False)


def read_elapsed(text: str) -> int | None:
    """Seconds of an elapsed time such as 1:29, 1:02:03 or 1-02:03:04; None where it is not known."""
    match = re.fullmatch(r"(?:(\d{1,9})-)?(?:(\d{1,9}):)?(\d{1,9}):(\d{1,2})(?:\.\d+)?", text.strip())
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


class ExitStatus(NamedTuple):
    """How a program ended: its exit code, and the signal that ended it (0: none)."""

    code: int = 0
    signal: int = 0


def read_exit(text: str) -> ExitStatus | None:
    """An exit code: CODE:SIGNAL, or the wait status as one number (squeue's exit_code); None where there is none."""
    word = text.strip()
    pair = re.fullmatch(r"(\d{1,5}):(\d{1,3})", word)
    if pair:
        return ExitStatus(int(pair[1]), int(pair[2]))
    status = read_number(word)
    if status is None or status < 0:
        return None
    return ExitStatus(status >> 8 & 0xFF if not status & 0x7F else 0, status & 0x7F)


def read_pairs(line: str) -> Iterator[tuple[str, str]]:
    """The NAME=value pairs of one line of `scontrol -o show`; values may hold blanks, names never do."""
    found = list(re.finditer(r"(?:(?<=\s)|^)([A-Za-z][\w/:.]*)=", line))
    ends = [*(match.start() for match in found[1:]), len(line)]
    for match, end in zip(found, ends, strict=False):
        yield match[1], line[match.end() : end].strip()
