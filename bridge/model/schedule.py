"""Schedules of recurring jobs: the times of crontab(5), and the policies for missed and overlapping runs."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import Optional

from overspan.bridge.model.records import NamedTuple, dataclass


class Missed(str, Enum):
    """What becomes of the runs that were due while no daemon was there."""

    SKIP = "skip"
    ONCE = "once"
    """The latest one is run, at once."""
    ALL = "all"
    """Each of them is run, one after another."""


class Overlap(str, Enum):
    """What becomes of a run that is due while the former one is not over."""

    ALLOW = "allow"
    SKIP = "skip"
    REPLACE = "replace"
    """The former one is cancelled."""


@dataclass(frozen=True)
class Schedule:
    """The times, and the policies. In the spec of a run, `id` is the schedule's and `due` the time it stands for.

    `text` is five fields or a word such as @daily; `timezone` is a name of the time zone database, empty for the
    submitter's own.
    """

    text: str
    timezone: str = ""
    missed: Missed = Missed.ONCE
    overlap: Overlap = Overlap.SKIP
    id: int = 0
    due: Optional[float] = None


class CronFields(NamedTuple):
    """The values that each field allows, in rising order; weekdays count from 0, Sunday.

    `any_day` and `any_weekday` are for a plain `*`: where neither is one, a day fits when either field fits
    (crontab(5)). `any_hour` is for an hour that begins with `*`.
    """

    minutes: tuple[int, ...]
    hours: tuple[int, ...]
    days: tuple[int, ...]
    months: tuple[int, ...]
    weekdays: tuple[int, ...]
    any_hour: bool
    any_day: bool
    any_weekday: bool


WORDS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""The words of crontab(5) and scrontab(1); @reboot has no meaning for a scheduler."""

# Written out: `calendar` costs each start of a supervisor 1.5 ms, and gives the names of the locale.
_MONTH_NAMES = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_MONTH_NAMES, 1)}
_WEEKDAYS = {name: number for number, name in enumerate(("sun", "mon", "tue", "wed", "thu", "fri", "sat"))}
_LONGEST = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
_PART = r"(\*|[0-9a-z]+)(?:-([0-9a-z]+))?(?:/([0-9]+))?"
_MAX_TEXT = 1024


class _Field(NamedTuple):
    name: str
    low: int
    high: int
    names: Mapping[str, int] = {}


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _WEEKDAYS),
)


def parse_cron(text: str) -> CronFields:
    """Read five fields or a word such as @daily (crontab(5)). Raises ValueError."""
    words = WORDS.get(text.strip().lower(), text).split()
    if len(text) > _MAX_TEXT or len(words) != len(_FIELDS):
        known = f"; words are {', '.join(WORDS)}" if text.strip().startswith("@") else ""
        raise ValueError(
            f"{_short(text)} is not a schedule; write five fields as crontab(5) has them: 0 3 * * mon{known}"
        )
    minutes, hours, days, months, weekdays = (_parse_field(word.lower(), field) for word, field in zip(words, _FIELDS))
    any_day, any_weekday = words[2] == "*", words[4] == "*"
    if any_weekday and not any(day <= _LONGEST[month - 1] for month in months for day in days):
        raise ValueError(f"{_short(text)} never comes: no such month has that day")
    sundays = tuple(sorted({day % 7 for day in weekdays}))
    return CronFields(minutes, hours, days, months, sundays, words[1].startswith("*"), any_day, any_weekday)


def find_wrong_field(text: str) -> int:
    """Which of the words of wrong times is wrong, from 0; 0 where it is their number, or all of them together."""
    words = text.split()
    if len(words) == len(_FIELDS):
        for number, (word, field) in enumerate(zip(words, _FIELDS)):
            try:
                _parse_field(word.lower(), field)
            except ValueError:
                return number
    return 0


def split_cron(line: str) -> tuple[str, str]:
    """Split a line of a crontab into its times and the rest; the rest is empty where there is none."""
    words = line.split(None, 1 if line.lstrip().startswith("@") else len(_FIELDS))
    count = 1 if line.lstrip().startswith("@") else len(_FIELDS)
    return " ".join(words[:count]), words[count] if len(words) > count else ""


def _parse_field(word: str, field: _Field) -> tuple[int, ...]:
    values: set[int] = set()
    for part in word.split(","):
        values.update(_parse_part(part, field))
    return tuple(sorted(values))


def _parse_part(part: str, field: _Field) -> Sequence[int]:
    match = re.fullmatch(_PART, part)
    if match is None:
        raise ValueError(f"{_short(part)} is no value of the {field.name}")
    first, last, step = match.groups()
    if first == "*":
        low, high = field.low, 6 if field.high == 7 else field.high
        if last is not None:
            raise ValueError(f"{_short(part)} is no value of the {field.name}")
    else:
        low = _parse_value(first, field)
        high = low if last is None else _parse_value(last, field)
        if high == 0 and low > 0 and field.high == 7:
            high = 7  # fri-sun
        if step is not None and last is None:
            raise ValueError(f"{_short(part)}: a step needs * or a range before it")
    if high < low:
        raise ValueError(f"{_short(part)}: the {field.name} runs backwards")
    width = 1 if step is None else int(step)
    if not 1 <= width <= field.high:
        raise ValueError(f"{_short(part)}: the step must be from 1 to {field.high}")
    return range(low, high + 1, width)


def _parse_value(word: str, field: _Field) -> int:
    value = field.names.get(word)
    if value is None and word.isdigit() and len(word) <= 2:
        value = int(word)
    if value is None or not field.low <= value <= field.high:
        raise ValueError(f"{_short(word)} is no {field.name}; it must be from {field.low} to {field.high}")
    return value


def _short(text: str) -> str:
    return repr(text if len(text) <= 64 else text[:64] + "...")
