"""The order of the queue: by what lives and its priority, or by columns, each rising or falling."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.listings.rows import JobRow, join_extents
from overspan.tui.queue.field_texts import make_text

_PLACES = {"COMPLETING": 0, "RUNNING": 1, "CONFIGURING": 2, "SUSPENDED": 3, "PENDING": 4}
_ENDED = 5


class SortKey(NamedTuple):
    """A field to sort by."""

    field: str
    falling: bool = False


SortOrder = tuple[SortKey, ...]
"""The first key counts most; none is the order of the queue itself."""


def make_order(order: SortOrder, clock: Callable[[], float]) -> Callable[[JobRow], Any]:
    """The key that rows are sorted by; the clock is asked for the times of what still runs. Equals: newest first."""
    if not order:
        return _by_state
    if len(order) == 1 and not order[0].falling:
        value = _find_value(order[0].field)
        return lambda row: (value(row, clock()), -row.id)
    parts = [(_find_value(key.field), key.falling) for key in order]
    return lambda row: (
        *(_Falling(value(row, clock())) if falling else value(row, clock()) for value, falling in parts),
        -row.id,
    )


def read_order(text: str) -> SortOrder:
    """The order of `partition,-priority`: fields, `-` before one that falls; what is no field is left out."""
    words = (word.strip() for word in text.split(","))
    keys = (SortKey(word.lstrip("+-"), word.startswith("-")) for word in words)
    return tuple(key for key in keys if key.field in FIELDS)


def write_order(order: SortOrder) -> str:
    """What `read_order` reads."""
    return ",".join(f"-{key.field}" if key.falling else key.field for key in order)


def order_extent(order: SortOrder) -> str:
    """How much of each row sorting needs."""
    return join_extents(("core", *(FIELDS[key.field].extent for key in order)))


def turn_order(order: SortOrder) -> SortOrder:
    """The other way round; the order of the queue itself has none."""
    return tuple(key._replace(falling=not key.falling) for key in order)


def move_order(order: SortOrder, columns: Sequence[str], by: int) -> SortOrder:
    """Sort by the next column to the right or left; beyond the last one is the order of the queue itself."""
    names = ("", *columns)
    at = names.index(order[0].field) if order and order[0].field in names else 0
    name = names[(at + by) % len(names)]
    return (SortKey(name),) if name else ()


def choose_order(order: SortOrder, field: str) -> SortOrder:
    """Sort by a column, or the other way round where it is sorted by already."""
    if order and order[0].field == field:
        return (order[0]._replace(falling=not order[0].falling),)
    return (SortKey(field),) if field else ()


def _find_value(name: str) -> Callable[[JobRow, float], Any]:
    field = FIELDS[name]
    return field.sort or make_text(field)


def _by_state(row: JobRow) -> tuple[int, int, int]:
    """What ends, runs, starts and waits, then what ended; of equals the one with more priority, then the newest."""
    return (_PLACES.get(row.state, _ENDED), -(row.priority or 0), -row.id)


class _Falling:
    """A value that sorts the other way round."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __lt__(self, other: _Falling) -> bool:
        return bool(other.value < self.value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Falling) and self.value == other.value

    def __hash__(self) -> int:
        return hash(self.value)
