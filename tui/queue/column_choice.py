"""Choosing columns: a list of fields of which some are chosen, in the order in which the columns will stand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from overspan.bridge.listings.fields import FIELDS
from overspan.tui.queue.columns import list_fields, title_of


class ColumnChoice(NamedTuple):
    """All fields in the order of the list, and those that are chosen."""

    fields: tuple[str, ...]
    chosen: frozenset[str]

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns, from left to right."""
        return tuple(field for field in self.fields if field in self.chosen)

    def toggle(self, field: str) -> ColumnChoice:
        """Choose a field, or not; the last column stays."""
        chosen = self.chosen ^ {field}
        return self._replace(chosen=chosen) if chosen else self

    def move(self, field: str, by: int) -> ColumnChoice:
        """Move a field in the list by places; its ends hold it."""
        at = self.fields.index(field)
        rest = [*self.fields[:at], *self.fields[at + 1 :]]
        rest.insert(max(0, min(at + by, len(rest))), field)
        return self._replace(fields=tuple(rest))

    def describe(self, field: str, ascii_only: bool = False) -> str:
        """A line of the list: whether it is chosen, its title, and what squeue calls it."""
        mark = ("x" if ascii_only else "✓") if field in self.chosen else " "
        return f" {mark} {describe_field(field)}"


def begin_choice(columns: Sequence[str]) -> ColumnChoice:
    """These columns are chosen; they are first in the list."""
    others = [field.name for field in list_fields() if field.name not in columns]
    return ColumnChoice((*columns, *others), frozenset(columns))


def describe_field(name: str) -> str:
    """A field's title, and what squeue calls it: its long name, and its letter."""
    field = FIELDS[name]
    letter = f"%{field.letter}" if field.letter else ""
    return f"{title_of(field):<18} {next(iter(field.long_names), ''):<16} {letter}".rstrip()
