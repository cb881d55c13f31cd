"""Reads a crontab as scrontab(1) has it: entries with #SCRON options and variables before them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.model.schedule import Schedule, find_wrong_field, parse_cron, split_cron
from overspan.bridge.readers.sbatch.arguments import split_directive
from overspan.bridge.readers.schedule_fields import find_zone
from overspan.bridge.validation.diagnostics import Diagnostics

FILE = "crontab"
ZONE = "CRON_TZ"
"""The variable that sets the time zone of the entries below it (cronie's crontab(5))."""
MAX_ENTRIES = 1000
_OPTIONS = "#SCRON"
_VARIABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(.*)", re.DOTALL)
_SCRIPT = "#!/bin/sh\n# An entry of a crontab, due at: {}\n{}\n"


@dataclass(frozen=True)
class CrontabEntry:
    """One entry: its lines (from 1, its options' included), times, options of sbatch, command, and variables."""

    first_line: int
    last_line: int
    schedule: Schedule
    options: tuple[str, ...]
    command: str
    variables: tuple[tuple[str, str], ...] = ()

    @property
    def name(self) -> str:
        """The job's name: the command's first word, without its folder."""
        return self.command.split()[0].rpartition("/")[2] or "cron"

    @property
    def script(self) -> str:
        """The batch script."""
        return _SCRIPT.format(self.schedule.text, self.command)


class _LogicalLine(NamedTuple):
    """A line with those that continue it."""

    text: str
    first: int
    last: int


def read_crontab(text: str, file: str = FILE) -> list[CrontabEntry]:
    """Read a crontab. InvalidRequest names every wrong line."""
    found = Diagnostics()
    entries: list[CrontabEntry] = []
    options: list[str] = []
    first = 0
    variables: dict[str, str] = {}
    for line in _join(text):
        place = Place(file, line.first, len(line.text) - len(line.text.lstrip()) + 1)
        words = line.text.strip()
        if words.startswith(_OPTIONS):
            first = first or line.first
            options += _read_options(words, place, found)
        elif not words or words.startswith("#"):
            continue
        elif (match := _VARIABLE.fullmatch(words)) is not None:
            _set_variable(variables, match[1], match[2], place, found)
        else:
            entry = _read_entry(words, place, variables, found)
            if entry is not None:
                entries.append(
                    CrontabEntry(
                        first or line.first, line.last, entry[0], tuple(options), entry[1], _exported(variables)
                    )
                )
            options, first = [], 0
    if options:
        found.add("options without an entry after them", Place(file, first), "write the entry, or remove the options")
    if len(entries) > MAX_ENTRIES:
        found.add(f"there are {len(entries)} entries; the limit is {MAX_ENTRIES}", Place(file))
    found.raise_any()
    return entries


def _join(text: str) -> Iterator[_LogicalLine]:
    """Lines; one that ends with a backslash goes on in the next, unless it is a comment."""
    parts: list[str] = []
    first = 0
    number = 0
    for number, line in enumerate(text.splitlines(), 1):
        first = first or number
        comment = not parts and line.lstrip().startswith("#") and not line.lstrip().startswith(_OPTIONS)
        if line.endswith("\\") and not comment:
            parts.append(line[:-1])
            continue
        yield _LogicalLine("".join((*parts, line)), first, number)
        parts, first = [], 0
    if parts:
        yield _LogicalLine("".join(parts), first, number)


def _read_options(words: str, place: Place, found: Diagnostics) -> list[str]:
    rest = words[len(_OPTIONS) :]
    try:
        return [word.text for word in split_directive(rest, place)]
    except ValueError as error:
        found.add(str(error), place, "close the quote")
        return []


def _set_variable(variables: dict[str, str], name: str, value: str, place: Place, found: Diagnostics) -> None:
    value = value.strip()
    if value[:1] in ("'", '"'):
        if len(value) < 2 or value[-1] != value[0]:
            found.add(f"the quote in the value of {name} is not closed", place, "close the quote")
            return
        value = value[1:-1]
    if name == ZONE and value:
        try:
            find_zone(value)
        except ValueError as error:
            found.add(str(error), place)
            return
    variables[name] = value


def _read_entry(words: str, place: Place, variables: dict[str, str], found: Diagnostics) -> tuple[Schedule, str] | None:
    times, command = split_cron(words)
    try:
        parse_cron(times)
    except ValueError as error:
        number = find_wrong_field(times)
        start = list(re.finditer(r"\S+", words))[number].start()
        found.add(str(error), place._replace(column=place.column + start))
        return None
    if not command:
        found.add("the entry has no command", place, "write the command after the times")
        return None
    return Schedule(times, timezone=variables.get(ZONE, "")), command


def _exported(variables: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((name, value) for name, value in variables.items() if name != ZONE)
