"""Tables as Slurm prints them: format texts read into fields, and fields and rows into text. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.model.errors import InvalidRequest

Getter = Callable[[Any, float], str]
"""The text of a row's field; the second argument is the time now, in seconds since the epoch."""


class Column(NamedTuple):
    """What can be shown: its header, its width without one asked for (0: as long as it is), and the text.

    `cut` is whether a text longer than an asked width is cut: node lists are not (squeue's print.c).
    """

    header: str
    width: int
    text: Getter
    cut: bool = True


class Field(NamedTuple):
    """A column in a format: `width` 0 is as long as it is, `suffix` is the literal text up to the next one."""

    column: Column
    width: int
    right: bool
    suffix: str


class Layout(NamedTuple):
    """A whole format: the literal text at the beginning, then the fields."""

    prefix: str
    fields: tuple[Field, ...]


def parse_letters(text: str, columns: Mapping[str, Column]) -> Layout:
    """Read an old-style format such as `%.18i %.9P %R`: `.` is right-justified. Raises InvalidRequest.

    Without a width a field is as long as its text. An unknown letter is refused, as squeue does.
    """
    prefix, *parts = re.split(r"(?=%)", text)
    fields = []
    for part in parts:
        match = re.fullmatch(r"%([.#]*)([0-9]*)([A-Za-z])(.*)", part, re.DOTALL)
        if not match:
            raise InvalidRequest(f"Invalid job format specification: {part}")
        flags, width, letter, suffix = match.groups()
        column = columns.get(letter)
        if column is None:
            raise InvalidRequest(f"Invalid job format specification: {letter}")
        fields.append(Field(column, int(width or 0), "." in flags, suffix))
    return Layout(prefix, tuple(fields))


def parse_names(text: str, columns: Mapping[str, Column], default_width: int = 20) -> Layout:
    """Read a new-style format such as `JobID:.12,Name:30,State:|`: name, then `:`, `.`, width or a suffix.

    Names are matched without case. Raises InvalidRequest for an unknown one.
    """
    by_name = {name.lower(): column for name, column in columns.items()}
    fields = []
    for item in text.split(","):
        name, _, form = item.strip().partition(":")
        if not name:
            continue
        column = by_name.get(name.lower())
        if column is None:
            raise InvalidRequest(f"Invalid job format specification: {name}", remedy=_nearest(name, columns))
        match = re.fullmatch(r"(\.?)([0-9]*)(.*)", form, re.DOTALL)
        right, width, suffix = match.groups() if match else ("", "", "")
        fields.append(Field(column, int(width or default_width), bool(right), suffix))
    return Layout("", tuple(fields))


def render(layout: Layout, rows: Sequence[Any], now: float, header: bool = True) -> str:
    """Write the table, one line a row; the empty text when there is nothing to write."""
    texts = []
    for field in layout.fields:
        get = field.column.text
        texts.append([get(row, now) for row in rows])
    line = layout.prefix.replace("%", "%%") + "".join(map(_directive, layout.fields))
    lines = [line % tuple(field.column.header for field in layout.fields)] if header else []
    lines += [line % cells for cells in zip(*texts, strict=True)] if layout.fields else []
    return "".join([text + "\n" for text in lines])


def render_delimited(columns: Iterable[Column], rows: Sequence[Any], now: float, *, delimiter: str) -> list[str]:
    """Write rows with a delimiter between the fields and no widths, as `sacct -P` does; the header is first."""
    chosen = list(columns)
    lines = [delimiter.join(column.header for column in chosen)]
    lines += [delimiter.join([column.text(row, now) for column in chosen]) for row in rows]
    return lines


def _directive(field: Field) -> str:
    suffix = field.suffix.replace("%", "%%")
    if not field.width:
        return "%s" + suffix
    cut = f".{field.width}" if field.column.cut else ""
    return f"%{'' if field.right else '-'}{field.width}{cut}s{suffix}"


def _nearest(name: str, names: Iterable[str]) -> str:
    import difflib

    known = {known.lower(): known for known in names}
    found = difflib.get_close_matches(name.lower(), known, n=1)
    return f"did you mean {known[found[0]]}?" if found else ""
