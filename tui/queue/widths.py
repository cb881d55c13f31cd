"""Widths of the queue's columns: as wide as what they hold, cut or left out where the terminal is too narrow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.cells import cell_len

from overspan.bridge.listings.fitting import cut_widths
from overspan.tui.queue.columns import TICKING, QueueColumn
from overspan.tui.queue.order import SortOrder
from overspan.tui.queue.tree import Line

SAMPLED = 300
"""Lines that are measured at most: of more, each n-th one."""
_HOUR = 3600.0
_MOST = {"id": 30, "name": 40, "user": 20, "partition": 20, "cluster": 20, "nodes_or_reason": 400}
_MOST_OF_OTHERS = 30
_READABLE = {"name": 14, "user": 8, "partition": 9, "cluster": 8, "nodes_or_reason": 18}
"""What texts are cut to before a column is left out."""
_LEAST = {"name": 8, "user": 5, "partition": 5, "cluster": 5, "nodes_or_reason": 10}
_TELLING_LITTLE = ("partition", "cluster", "user")
"""Columns that tell nothing where all lines have the same there."""
_LEFT_OUT = ("nodes", "partition", "cluster", "user")
"""What goes first; then what was chosen besides, from the right."""
_KEPT = frozenset({"id", "name", "state_code", "state", "time_used", "nodes_or_reason"})


class MeasuredColumn(NamedTuple):
    """How wide a column's texts are at most, and whether they are all the same."""

    width: int
    uniform: bool = False


class ColumnWidths(NamedTuple):
    """The columns that have room, each with its width, and how many have none."""

    widths: tuple[tuple[QueueColumn, int], ...]
    hidden: int = 0


def measure_columns(
    columns: Sequence[QueueColumn],
    lines: Sequence[Line],
    now: float,
    order: SortOrder,
    held: Mapping[str, MeasuredColumn],
) -> dict[str, MeasuredColumn]:
    """How wide the columns are with these lines; `held` is what they had, below which they do not fall."""
    step = max(1, -(-len(lines) // SAMPLED))
    sample = lines[::step]
    arrows = {key.field for key in order[:1]}
    found = {}
    for column in columns:
        # A time that grows by a letter within the hour has its place already.
        at = now + _HOUR if column.field in TICKING else now
        texts = {column.show(line, at).text for line in sample}
        widest = max((cell_len(text) for text in texts), default=0)
        # The column that it is sorted by has an arrow behind its title.
        title = cell_len(column.title) + (column.field in arrows)
        width = max(min(widest, _MOST.get(column.field, _MOST_OF_OTHERS)), title)
        before = held.get(column.field, MeasuredColumn(0)).width
        found[column.field] = MeasuredColumn(max(before, width), len(texts) < 2 and len(sample) > 1)
    return found


def fit_columns(columns: Sequence[QueueColumn], measured: Mapping[str, MeasuredColumn], room: int) -> ColumnWidths:
    """Share the room of a line; a blank stands behind each column. `room` 0 is any number."""
    shown = list(columns)
    if not room:
        return ColumnWidths(tuple((column, measured[column.field].width) for column in shown))
    for leaving in _list_leaving(columns, measured):
        if _total(shown, measured, _READABLE) <= room:
            break
        shown.remove(leaving)
    widths = [measured[column.field].width for column in shown]
    readable = [_least(column, measured, _READABLE) for column in shown]
    least = [_least(column, measured, _LEAST) for column in shown]
    space = room - len(shown)
    widths = cut_widths(cut_widths(widths, readable, space), least, space)
    return ColumnWidths(tuple(zip(shown, widths, strict=True)), len(columns) - len(shown))


def _list_leaving(columns: Sequence[QueueColumn], measured: Mapping[str, MeasuredColumn]) -> list[QueueColumn]:
    """The columns in the order in which they go; the first column never does."""
    by_field = {column.field: column for column in columns[1:]}
    same = [name for name in _TELLING_LITTLE if name in by_field and measured[name].uniform]
    others = [name for name in reversed(by_field) if name not in _KEPT and name not in _LEFT_OUT]
    kept = [name for name in reversed(by_field) if name in _KEPT and name != "state_code"]
    order = (*same, *(name for name in _LEFT_OUT if name in by_field), *others, *kept)
    return [by_field[name] for name in dict.fromkeys(order)]


def _least(column: QueueColumn, measured: Mapping[str, MeasuredColumn], bounds: Mapping[str, int]) -> int:
    width = measured[column.field].width
    return min(width, bounds.get(column.field, width))


def _total(columns: Sequence[QueueColumn], measured: Mapping[str, MeasuredColumn], bounds: Mapping[str, int]) -> int:
    return sum(_least(column, measured, bounds) + 1 for column in columns)
