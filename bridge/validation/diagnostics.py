"""Diagnostics of an input: faults, collected so that the user sees all at once, and notes."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

from overspan.bridge.model.errors import InvalidRequest, Place

MAX_SHOWN = 20
"""Faults shown besides the first."""
MAX_KEPT = 100
"""Faults after which reading ends: a file of thousands is not worth the time."""
MAX_MESSAGE = 400
"""Characters of one finding; values are quoted in it."""
MAX_VALUE = 64
"""Characters of a value that a finding quotes."""


class Fault(Exception):
    """One thing that is wrong; stays inside the readers."""

    def __init__(self, message: str, place: Place | None, remedy: str = "") -> None:
        super().__init__(message)
        self.message = message if len(message) <= MAX_MESSAGE else message[:MAX_MESSAGE] + "..."
        self.place = place
        self.remedy = remedy


class Diagnostics:
    """Faults and notes of one input, in the order they were found."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []
        self.notes: list[str] = []
        self._seen: set[tuple[object, ...]] = set()

    def add(self, message: str, place: Place | None, remedy: str = "") -> None:
        """Keep a fault; `place` is None for what no file says.

        The same words at the same place are kept once: an anchor may be read several times.
        """
        if (message, place) in self._seen:
            return
        self._seen.add((message, place))
        self.faults.append(Fault(message, place, remedy))
        if len(self.faults) >= MAX_KEPT:
            self.raise_any()

    def note(self, text: str) -> None:
        """Keep a note for the user, once."""
        if (text,) not in self._seen and len(self.notes) < MAX_KEPT:
            self._seen.add((text,))
            self.notes.append(text)

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Keep a Fault that is raised inside, and go on after the block."""
        try:
            yield
        except Fault as fault:
            self.add(fault.message, fault.place, fault.remedy)

    def raise_any(self) -> None:
        """Raise InvalidRequest when a fault was found: the first in the text as the error, the others as its lines."""
        if not self.faults:
            return
        first, *others = sorted(self.faults, key=lambda fault: fault.place or Place(""))
        lines = [first.message]
        for fault in others[:MAX_SHOWN]:
            where = f"{fault.place}: " if fault.place else ""
            lines.append(f"{where}{fault.message}" + (f" ({fault.remedy})" if fault.remedy else ""))
        if len(others) > MAX_SHOWN:
            lines.append(f"and {len(others) - MAX_SHOWN} more")
        raise InvalidRequest("\n".join(lines), remedy=first.remedy, place=first.place)


def refuse(message: str, place: Place, remedy: str = "") -> NoReturn:
    """Raise InvalidRequest at a position."""
    raise InvalidRequest(message, remedy=remedy, place=place)


def nearest(word: str, known: Iterable[str]) -> str:
    """`; did you mean 'x'?` for the nearest known word, else nothing."""
    # The matcher is quadratic, and no known word is long.
    matches = difflib.get_close_matches(word, list(known), 1, 0.6) if len(word) <= 64 else []
    return f"; did you mean {matches[0]!r}?" if matches else ""


def say_wanted(wanted: str, given: str) -> str:
    """What is wanted, and what there is instead."""
    return f"{wanted} is wanted here, not {given}"


def say_range(value: object, bounds: str) -> str:
    """A number outside of its bounds, such as `from 1 to 9`."""
    return f"{value} is out of range; it must be {bounds}"


def say_choice(word: str, known: Iterable[str]) -> str:
    """A word that is none of a few, and the nearest of them."""
    known = list(known)
    return f"{_cut(word)!r} is none of {', '.join(known)}{nearest(word, known)}"


def say_length(count: int, limit: int) -> str:
    """A text that is too long."""
    return f"the text has {count} characters; the limit is {limit}"


def describe_value(value: object) -> str:
    """What a value is; a long one is cut."""
    if value is None:
        return "nothing"
    if isinstance(value, Mapping):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"the text {_cut(value)!r}" if isinstance(value, str) else _cut(str(value))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_VALUE else text[:MAX_VALUE] + "..."
