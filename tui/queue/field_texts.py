"""The texts of fields. Values come from clusters: one that cannot be read is shown as `?` and raises nothing."""

from __future__ import annotations

from overspan.bridge.listings.field import Field, RowText
from overspan.bridge.listings.rows import JobRow

UNREADABLE = "?"


def make_text(field: Field) -> RowText:
    """The text of a row's field; `?` where its value cannot be read, as a damaged host list cannot."""
    text = field.text

    def read(row: JobRow, now: float) -> str:
        try:
            return text(row, now)
        except ValueError:
            return UNREADABLE

    return read
