"""Tables in Slurm's layout: parses format texts into fields, and renders rows by them. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.listings.rows import WHOLE, join_extents

Getter = Callable[[Any, float], str]
"""The text of a row's field; the second argument is the time now, in seconds since the epoch."""


class Column(NamedTuple):
    """What can be shown: its header, its width without one asked for (0: as long as it is), and the text.

    `cut` is whether a right-justified text longer than an asked width is cut, `cut_header` whether the header is:
    times and node lists are not (squeue's print.c). `extent` is how much of each row it needs.
    """

    header: str
    width: int
    text: Getter
    cut: bool = True
    cut_header: bool = True
    extent: str = WHOLE
    marked: bool = False
    """Whether a `*` at the end of a text is to stay when it is cut."""


class LayoutField(NamedTuple):
    """A column in a format: `width` 0 is as long as it is, `suffix` is the literal text up to the next one."""

    column: Column
    width: int
    right: bool
    suffix: str


class Layout(NamedTuple):
    """A parsed format: the literal text at its beginning, the fields, and the parts that name no field (`faults`)."""

    prefix: str
    fields: tuple[LayoutField, ...]
    faults: tuple[str, ...] = ()

    @property
    def extent(self) -> str:
        """How much of each row it needs."""
        return join_extents(("core", *(field.column.extent for field in self.fields)))


_LITERAL = Column("", 0, lambda row, now: "", extent="core")


def parse_letters(text: str, columns: Mapping[str, Column]) -> Layout:
    """Read an old-style format such as `%.18i %.9P %R`: `.` is right-justified.

    Without a width a field is as long as its text. What is no field is printed as it stands and told in `faults`,
    as squeue and sinfo do (measured on Slurm 22.05).
    """
    if text.lower() == "%all":
        text = "|".join(f"%{letter}" for letter in columns)
    prefix, *parts = text.split("%")
    fields = []
    faults = []
    for part in filter(None, parts):
        match = re.match(r"([.#]*)([0-9]*)", part)
        flags, width = match.groups() if match else ("", "")
        letter, suffix = part[len(flags + width) :][:1], part[len(flags + width) + 1 :]
        column = columns.get(letter)
        if column is None:
            faults.append(letter)
            fields.append(LayoutField(_LITERAL, 0, False, f"%{part}"))
        else:
            fields.append(LayoutField(column, int(width or 0), "." in flags, suffix))
    return Layout(prefix, tuple(fields), tuple(faults))


def parse_names(text: str, columns: Mapping[str, Column], default_width: int = 20) -> Layout:
    """Read a new-style format such as `JobID:.12,Name:30,State:|`: name, then `:`, `.`, width or a suffix.

    Names are matched without case. With a suffix and no width a field is as long as its text. An unknown name leaves
    its suffix and is told in `faults`.
    """
    by_name = {name.lower(): column for name, column in columns.items()}
    fields = []
    faults = []
    for item in text.split(","):
        name, colon, form = item.strip(" ").partition(":")
        if not name:
            continue
        match = re.match(r"(\.?)([0-9]*)(.*)", form, re.DOTALL)
        right, width, suffix = match.groups() if match else ("", "", "")
        column = by_name.get(name.lower())
        if column is None:
            faults.append(name)
            fields.append(LayoutField(_LITERAL, 0, False, suffix))
        else:
            fields.append(LayoutField(column, int(width or 0) if colon else default_width, bool(right), suffix))
    return Layout("", tuple(fields), tuple(faults))


def render(layout: Layout, rows: Sequence[Any], now: float, header: bool = True) -> str:
    """Write the table, one line a row; the empty text when there is nothing to write."""
    texts = [_cells(field, rows, now) for field in layout.fields]
    line = layout.prefix.replace("%", "%%") + "".join(map(_directive, layout.fields))
    lines = [write_header(layout)] if header else []
    if layout.fields:
        lines += [line % cells for cells in zip(*texts)]
    else:
        lines += [layout.prefix] * len(rows)
    return "".join([text + "\n" for text in lines])


def write_header(layout: Layout) -> str:
    """The headers in their widths."""
    parts = [layout.prefix]
    for column, width, right, suffix in layout.fields:
        text = column.header
        if width and (column.cut_header or not right):
            text = text[:width]
        parts.append((text.rjust(width) if right else text.ljust(width)) + suffix)
    return "".join(parts)


def render_delimited(columns: Iterable[Column], rows: Sequence[Any], now: float, *, delimiter: str) -> list[str]:
    """Write rows with a delimiter between the fields and no widths, as `sacct -P` does; the header is first."""
    chosen = list(columns)
    lines = [delimiter.join(column.header for column in chosen)]
    lines += [delimiter.join([column.text(row, now) for column in chosen]) for row in rows]
    return lines


def _cells(field: LayoutField, rows: Sequence[Any], now: float) -> list[str]:
    get = field.column.text
    texts = [get(row, now) for row in rows]
    if field.column.marked and field.width:
        # The mark of a default partition stays when its name is cut.
        size = field.width
        texts = [f"{text[: size - 1]}*" if len(text) > size and text[-1] == "*" else text for text in texts]
    if field.right and field.width and not field.column.cut:
        # Node lists are never cut, but the reasons in their column are.
        texts = [text[: field.width] if text[:1] == "(" else text for text in texts]
    return texts


def _directive(field: LayoutField) -> str:
    suffix = field.suffix.replace("%", "%%")
    if not field.width:
        return "%s" + suffix
    if field.right:
        cut = f".{field.width}" if field.column.cut else ""
        return f"%{field.width}{cut}s{suffix}"
    return f"%-{field.width}.{field.width}s{suffix}"
