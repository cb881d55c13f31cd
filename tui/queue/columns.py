"""The columns of the queue, from the registry of fields: their texts are those of squeue."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.field import Field
from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.model.state_words import CODES
from overspan.tui.queue.tree import Kind, Line
from overspan.tui.widgets.line_table import Cell, Column

DEFAULT = ("id", "name", "user", "partition", "cluster", "state_code", "time_used", "nodes", "nodes_or_reason")
_WIDTHS = {
    "id": 14, "name": 16, "user": 8, "partition": 10, "cluster": 10, "state_code": 3, "time_used": 10, "nodes": 5,
    "nodes_or_reason": 20,
}  # fmt: skip
_WIDE = frozenset({"name", "nodes_or_reason"})
_RIGHT = frozenset({"time_used", "nodes"})
_FROM_WIDTH = {"user": 70, "partition": 96, "cluster": 84, "nodes": 78}
_TITLES = {"id": "JOB", "state_code": "ST", "cluster": "CLUSTER", "nodes_or_reason": "NODES OR REASON"}
_STYLES = {
    "RUNNING": "good",
    "COMPLETING": "busy",
    "CONFIGURING": "busy",
    "SUSPENDED": "busy",
    "PENDING": "waiting",
    "COMPLETED": "ended",
    "CANCELLED": "ended",
}


def style_of(state: str) -> str:
    """The style of a job's state: a component class without `line-table--`."""
    return _STYLES.get(state, "bad")


def make_columns(names: Sequence[str], ascii_only: bool = False) -> list[Column[Line]]:
    """The columns of these fields, in this order; the first has the tree."""
    return [_make_column(FIELDS[name], name == names[0], ascii_only) for name in names]


def _make_column(field: Field, tree: bool, ascii_only: bool) -> Column[Line]:
    show = _SPECIAL.get(field.name) or _show_field(field)
    return Column(
        field.name,
        _TITLES.get(field.name, field.header),
        _WIDTHS.get(field.name, field.width or 12),
        _show_tree(show, ascii_only) if tree else show,
        right=field.name in _RIGHT,
        wide=field.name in _WIDE,
        from_width=_FROM_WIDTH.get(field.name, 0),
        ticks=field.name.startswith("time_"),
    )


def _show_field(field: Field) -> Callable[[Line, float], Cell]:
    text = field.text
    return lambda line, now: Cell(clean_text(text(line.node.row, now)), "ended" if line.node.over else "")


def _show_tree(show: Callable[[Line, float], Cell], ascii_only: bool) -> Callable[[Line, float], Cell]:
    folded, unfolded, inner, last = ("+ ", "- ", " |- ", " `- ") if ascii_only else ("▸ ", "▾ ", " ├ ", " └ ")

    def show_tree(line: Line, now: float) -> Cell:
        cell = show(line, now)
        if line.depth:
            return cell._replace(text=(last if line.last else inner) + cell.text)
        head = "  " if line.folded is None else folded if line.folded else unfolded
        return cell._replace(text=head + cell.text)

    return show_tree


def _show_id(line: Line, now: float) -> Cell:
    return Cell(clean_text(line.node.ref), "ended" if line.node.over else "accent")


def _show_state(line: Line, now: float) -> Cell:
    state = line.node.row.state
    return Cell(CODES.get(state, state[:2]), style_of(state))


def _show_end(line: Line, now: float) -> Cell:
    """A head tells how many of its members are how; a member where it runs, or why it does not."""
    if line.node.kind in (Kind.GROUP, Kind.ARRAY):
        parts = [f"{count} {CODES.get(state, state)}" for state, count in line.node.tally.items()]
        return Cell(", ".join(parts), style_of(line.node.row.state))
    text = FIELDS["nodes_or_reason"].text(line.node.row, now)
    style = "waiting" if line.node.row.state == "PENDING" else "ended" if line.node.over else "dim"
    return Cell(clean_text(text), style)


_SPECIAL: dict[str, Callable[[Line, float], Cell]] = {
    "id": _show_id,
    "state_code": _show_state,
    "nodes_or_reason": _show_end,
}
