"""Texts of a task's members that differ in the member's number alone: made for two of them, filled in for all. Pure."""

from __future__ import annotations

from collections.abc import Callable

NumberedText = Callable[[int], str]
"""The text of a member, by its number."""


def number_text(make: NumberedText, count: int) -> NumberedText:
    """The same texts for the members below `count`; where they differ in more than their number, `make` itself."""
    first, last = make(0), make(count - 1)
    if first == last:
        return lambda index: first
    place = next((place for place, (one, other) in enumerate(zip(first, last, strict=False)) if one != other), 0)
    head, tail = first[:place], first[place + 1 :]
    if first[place : place + 1] != "0" or last != f"{head}{count - 1}{tail}":
        return make
    return lambda index: f"{head}{index}{tail}"
