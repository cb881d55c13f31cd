"""Durations and points in time, read and written as Slurm does.

Seconds inside, always; minutes only at Slurm's own options. No limit is None.
"""

from __future__ import annotations

import re
import time
from typing import Union

from overspan.bridge.model.records import NamedTuple

MINUTE = 60
HOUR = 3600
DAY = 86400
WEEK = 7 * DAY

_UNITS = {"s": 1, "m": MINUTE, "h": HOUR, "d": DAY, "w": WEEK}
_NO_LIMIT = ("-1", "infinite", "unlimited")
# Slurm counts limits in 32-bit minutes and keeps the highest values for itself.
_LONGEST = 0xFFFFFFF0 * MINUTE

_WITH_UNIT = r"([0-9]{1,18})([smhdwSMHDW])?"
_WITHOUT_DAYS = r"([0-9]{1,12})(?::([0-9]{1,12}))?(?::([0-9]{1,12}))?"
_WITH_DAYS = r"([0-9]{1,12})-(?:([0-9]{1,12})(?::([0-9]{1,12}))?(?::([0-9]{1,12}))?)?"

_WORDS_OF_DAY = {"midnight": 0, "elevenses": 11, "noon": 12, "fika": 15, "teatime": 16}
_NOW = r"now\s*(?:([+-])\s*([0-9]{1,12})\s*(?:(second|minute|hour|day|week)s?)?)?\s*"
_SPANS = {"second": 1, "minute": MINUTE, "hour": HOUR, "day": DAY, "week": WEEK}
_WORD = r"today|tomorrow|midnight|elevenses|noon|fika|teatime"
_ISO_DATE = r"([0-9]{4})-([0-9]{2})-([0-9]{2})(?![0-9])"
_CLOCK = r"([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?(?: ?([ap])m)?(?![0-9:])"
_DATE = r"([0-9]{1,2})[/.]([0-9]{1,2})(?:[/.]([0-9]{2}))?(?![0-9/.])"
_SHORT_DATE = r"([0-9]{2})([0-9]{2})([0-9]{2})?(?![0-9])"
_MONTH_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def parse_time_limit(text: str) -> int | None:
    """Read a --time value: seconds, or None for no limit.

    Forms: M, M:S, H:M:S, D-H, D-H:M, D-H:M:S; 0, -1, INFINITE and UNLIMITED mean no limit. No part has an
    upper bound of its own: 0:200000 is 200,000 seconds (sbatch(1), measured on 22.05). Raises ValueError.
    """
    if text.lower() in _NO_LIMIT:
        return None
    match = re.fullmatch(_WITH_DAYS, text)
    if match:
        days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
        total = days * DAY + hours * HOUR + minutes * MINUTE + seconds
    else:
        match = re.fullmatch(_WITHOUT_DAYS, text)
        if not match:
            raise ValueError(
                f"{text!r} is not a time limit; write minutes, M:S, H:M:S, D-H, D-H:M, D-H:M:S or UNLIMITED"
            )
        parts = [int(part) for part in match.groups() if part is not None]
        # One or two parts begin with minutes, three with hours.
        factors = (HOUR, MINUTE, 1) if len(parts) == 3 else (MINUTE, 1)
        total = sum(part * factor for part, factor in zip(parts, factors))
    return _bounded(total, text)


def parse_wall_time(value: str | int) -> int | None:
    """Read a job file's `time`: Slurm's formats, or a whole number with s, m, h, d or w. Seconds, None for no limit.

    A bare number is minutes, as in Slurm. Raises ValueError, for true, false and fractions too.
    """
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        raise ValueError(f"{value!r} is not a wall time; write minutes, 90s, 2h or a Slurm time such as 1-12:00:00")
    text = str(value)
    match = re.fullmatch(_WITH_UNIT, text)
    if match and match[2]:
        return _bounded(int(match[1]) * _UNITS[match[2].lower()], text)
    try:
        return parse_time_limit(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a wall time; write minutes, a whole number with s, m, h, d or w, or a Slurm time"
        ) from None


def parse_delay(value: str | int) -> int:
    """Read a delay in SkyPilot's format: a whole number and at most one unit of s, m, h, d, w; bare means seconds.

    Decimals, `1m30s`, negative numbers, floats and booleans raise ValueError.
    """
    if not isinstance(value, bool) and isinstance(value, (str, int)):
        match = re.fullmatch(_WITH_UNIT, str(value))
        if match:
            return int(match[1]) * _UNITS[(match[2] or "s").lower()]
    raise ValueError(f"{value!r} is not a delay; write whole seconds, or a whole number with s, m, h, d or w")


def slurm_minutes(seconds: int) -> int:
    """Round up to whole minutes, the unit of Slurm's own options."""
    return -(-seconds // MINUTE)


def _bounded(seconds: int, text: str) -> int | None:
    """Zero means no limit. Raises ValueError for more than Slurm can count."""
    if seconds > _LONGEST:
        raise ValueError(f"{text!r} is longer than a time limit can be; write UNLIMITED for none")
    return seconds or None


def format_elapsed(seconds: float) -> str:
    """Write a duration as squeue's TIME does: 0:00, 1:02:03, 1-02:03:04. Negative is INVALID."""
    whole = int(seconds)
    if whole < 0:
        return "INVALID"
    minutes, second = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes}:{second:02d}"
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours}:{minute:02d}:{second:02d}"
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def format_elapsed_long(seconds: float | None) -> str:
    """Write a duration as sacct's Elapsed and Timelimit do: 00:00:05, 1-02:03:04, UNLIMITED for None."""
    if seconds is None:
        return "UNLIMITED"
    whole = int(seconds)
    if whole < 0:
        return "INVALID"
    minutes, second = divmod(whole, 60)
    hours, minute = divmod(minutes, 60)
    if hours < 24:
        return f"{hours:02d}:{minute:02d}:{second:02d}"
    days, hour = divmod(hours, 24)
    return f"{days}-{hour:02d}:{minute:02d}:{second:02d}"


def format_limit(seconds: float | None) -> str:
    """Write a limit as squeue's TIME_LIMIT does; None is UNLIMITED."""
    return "UNLIMITED" if seconds is None else format_elapsed(seconds)


def format_timestamp(epoch: float | None, missing: str = "N/A") -> str:
    """Write seconds since 1970 as YYYY-MM-DDTHH:MM:SS in local time; None and 0 give `missing`.

    squeue says N/A where nothing is known, sacct and scontrol say Unknown.
    """
    if not epoch:
        return missing
    year, month, day, hour, minute, second = time.localtime(epoch)[:6]
    return f"{year:04d}-{month:02d}-{day:02d}T{hour:02d}:{minute:02d}:{second:02d}"


class _Day(NamedTuple):
    """A date; a year of None is still to be chosen."""

    year: int | None
    month: int
    day: int


class _Clock(NamedTuple):
    """A time of day."""

    hour: int
    minute: int
    second: int


def parse_when(text: str, now: float, past: bool = False) -> float:
    """Read a point in time in the words of --begin and of sacct's start and end: seconds since 1970.

    Forms: now[+-N[seconds|minutes|hours|days|weeks]], today, tomorrow, midnight, elevenses, noon, fika, teatime,
    HH:MM[:SS][am|pm], MMDD[YY], MM/DD[/YY], YYYY-MM-DD[THH:MM[:SS]]; a date and a time of day may be joined by
    T, - or blanks.
    A time alone means the next such time, a date without a year the next such date; with `past` (sacct) they
    mean today, and the last such month. Local time. Raises ValueError.
    """
    match = re.fullmatch(_NOW, text.strip(), re.IGNORECASE)
    if match:
        delta = int(match[2] or 0) * _SPANS[(match[3] or "second").lower()]
        return float(now) + (-delta if match[1] == "-" else delta)
    day, clock = _scan_when(text, now)
    today = time.localtime(now)
    if day is None:
        if clock is None:
            raise ValueError(f"{text!r} is not a point in time; write now+1hour, HH:MM or YYYY-MM-DDTHH:MM:SS")
        ahead = past or (clock.hour, clock.minute) > (today.tm_hour, today.tm_min)
        day = _day_of(now if ahead else now + DAY)
    clock = clock or _Clock(0, 0, 0)
    if day.year is None:
        day = _checked_day(text, _choose_year(day, clock, today, past), day.month, day.day)
    try:
        return time.mktime((day.year or 0, day.month, day.day, *clock, 0, 0, -1))
    except (OverflowError, ValueError):
        raise ValueError(f"{text!r} is outside the calendar") from None


_Part = Union[_Day, _Clock]


def _scan_when(text: str, now: float) -> tuple[_Day | None, _Clock | None]:
    """Take the date and the time of day out of a text, in either order, each at most once."""
    day: _Day | None = None
    clock: _Clock | None = None
    at = 0
    while at < len(text):
        part, end = _read_part(text, at, now)
        if isinstance(part, _Day) and day is None:
            day = part
        elif isinstance(part, _Clock) and clock is None:
            clock = part
        elif part is None and text[at] in " \t-T":
            end = at + 1
        else:
            raise ValueError(f"{text!r} is not a point in time: cannot read it from character {at + 1} on")
        at = end
    return day, clock


def _read_part(text: str, at: int, now: float) -> tuple[_Part | None, int]:
    """Read one date or time of day at a position; None where neither stands there."""
    rest = text[at:]
    match = re.match(_WORD, rest, re.IGNORECASE)
    if match:
        word = match[0].lower()
        if word in _WORDS_OF_DAY:
            return _Clock(_WORDS_OF_DAY[word], 0, 0), at + match.end()
        return _day_of(now if word == "today" else now + DAY), at + match.end()
    match = re.match(_CLOCK, rest, re.IGNORECASE)
    if match:
        hour = _full_hour(text, int(match[1]), (match[4] or "").lower())
        return _checked_clock(text, hour, int(match[2]), int(match[3] or 0)), at + match.end()
    match = re.match(_ISO_DATE, rest)
    if match:
        return _checked_day(text, int(match[1]), int(match[2]), int(match[3])), at + match.end()
    match = re.match(_DATE, rest) or re.match(_SHORT_DATE, rest)
    if match:
        year = int(match[3]) + 2000 if match[3] else None
        return _checked_day(text, year, int(match[1]), int(match[2])), at + match.end()
    return None, at


def _full_hour(text: str, hour: int, half: str) -> int:
    """The hour of 24 for one of 12 with `a` or `p`."""
    if not half:
        return hour
    if not 1 <= hour <= 12:
        raise ValueError(f"{text!r} has no such time of day: {hour} {half}m")
    return hour % 12 + (12 if half == "p" else 0)


def _checked_clock(text: str, hour: int, minute: int, second: int) -> _Clock:
    if hour > 23 or minute > 59 or second > 59:
        raise ValueError(f"{text!r} has no such time of day: {hour:02d}:{minute:02d}:{second:02d}")
    return _Clock(hour, minute, second)


def _checked_day(text: str, year: int | None, month: int, day: int) -> _Day:
    known = 1 <= month <= 12 and 1 <= day <= _MONTH_DAYS[month - 1]
    if known and (month, day) == (2, 29) and year is not None:
        known = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if not known:
        raise ValueError(f"{text!r} has no such day: month {month}, day {day}")
    return _Day(year, month, day)


def _day_of(epoch: float) -> _Day:
    local = time.localtime(epoch)
    return _Day(local.tm_year, local.tm_mon, local.tm_mday)


def _choose_year(day: _Day, clock: _Clock, today: time.struct_time, past: bool) -> int:
    """Choose the year of a date written without one, as Slurm's parse_time does."""
    if past:
        return today.tm_year - 1 if day.month > today.tm_mon else today.tm_year
    asked = (day.month, day.day, clock.hour, clock.minute)
    current = (today.tm_mon, today.tm_mday, today.tm_hour, today.tm_min)
    return today.tm_year if asked > current else today.tm_year + 1
