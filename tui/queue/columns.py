"""The columns of the queue, from the registry of fields: their texts are those of squeue."""

from __future__ import annotations

import difflib
import time
from collections.abc import Callable, Collection, Container, Iterable, Sequence
from typing import NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.field import Field
from overspan.bridge.listings.fields import FIELDS, LETTERS, long_names, queue_column
from overspan.bridge.listings.layout import Layout, parse_letters, parse_names
from overspan.bridge.listings.rows import JobRow, join_extents
from overspan.bridge.listings.texts import job_id, planned_start
from overspan.bridge.model.durations import DAY, WEEK
from overspan.bridge.model.state_words import CODES
from overspan.tui.queue.field_texts import make_text
from overspan.tui.queue.styled_text import StyledText
from overspan.tui.queue.tree import Kind, Line, LineKey

DEFAULT = ("id", "name", "user", "partition", "cluster", "state_code", "time_used", "nodes", "nodes_or_reason")
RIGHT = frozenset({"time_used", "time_left", "time_limit", "nodes", "cpus", "priority", "gpus", "memory"})
TICKING = frozenset({"time_used", "time_left", "time_pending", "time_waited", "cpu_time"})
"""What changes with the time alone."""
_TITLES = {"id": "JOBID", "nodes_or_reason": "NODES OR REASON"}
_STYLES = {
    "RUNNING": "good",
    "COMPLETING": "busy",
    "CONFIGURING": "busy",
    "SUSPENDED": "busy",
    "PENDING": "waiting",
    "COMPLETED": "ended",
    "CANCELLED": "ended",
}
CellText = Callable[[Line, float], StyledText]


class QueueColumn(NamedTuple):
    """A column: what it shows of a line at a time (epoch seconds)."""

    field: str
    title: str
    show: CellText


class ReadColumns(NamedTuple):
    """Columns that were asked for by name, and the names that are none."""

    fields: tuple[str, ...]
    trouble: str = ""


def style_of(state: str) -> str:
    """The style of a job's state."""
    return _STYLES.get(state, "bad")


def make_columns(
    names: Sequence[str],
    stale: Collection[str] = (),
    ascii_only: bool = False,
    watched: Container[LineKey] = frozenset(),
) -> list[QueueColumn]:
    """The columns of these fields, in this order; the first has the tree, and a sign behind what is watched.

    `stale`: clusters that do not answer. `watched` is looked at when a line is painted.
    """
    columns = [QueueColumn(name, title_of(FIELDS[name]), _find_text(name, stale)) for name in names]
    first = columns[0]
    # Its title stands above the texts, behind the signs of the tree.
    tree = first._replace(title=f"  {first.title}", show=_show_tree(first.show, ascii_only, watched))
    return [tree, *columns[1:]]


def title_of(field: Field) -> str:
    """The title of a field's column."""
    return _TITLES.get(field.name, field.header)


def list_fields() -> list[Field]:
    """The fields that can be columns, those of the queue first, then by title."""
    shown = [field for field in FIELDS.values() if field.header and (field.letter or field.long_names)]
    return sorted(shown, key=lambda field: (field.name not in DEFAULT, title_of(field), field.name))


def columns_extent(names: Iterable[str]) -> str:
    """How much of each row the columns need."""
    return join_extents(("core", *(FIELDS[name].extent for name in names)))


# --- by name ----------------------------------------------------------------------------------------------------------


def read_columns(names: Iterable[str]) -> ReadColumns:
    """Columns by the names of their fields, or by squeue's long names, in any case."""
    known = {long.lower(): field.name for field in FIELDS.values() for long in field.long_names}
    known |= {name.lower(): name for name in FIELDS}
    found, troubles = [], []
    for name in names:
        field = known.get(name.strip().lower())
        if field is None:
            near = difflib.get_close_matches(name.lower(), known, 1)
            troubles.append(f"there is no column {name!r}" + (f" (did you mean {known[near[0]]!r}?)" if near else ""))
        else:
            found.append(field)
    return ReadColumns(tuple(dict.fromkeys(found)), "; ".join(troubles))


def read_format(text: str, letters: bool) -> ReadColumns:
    """The columns of a format of squeue: -o has letters, -O long names; its widths and literal texts do not count."""
    layout = parse_letters(text, LETTERS) if letters else parse_names(text, long_names())
    troubles = [f"there is no column {fault!r} in the format {text!r}" for fault in layout.faults]
    return ReadColumns(_find_fields(layout), "; ".join(troubles))


def _find_fields(layout: Layout) -> tuple[str, ...]:
    by_column = {queue_column(field): name for name, field in FIELDS.items()}
    names = (by_column.get(field.column) for field in layout.fields)
    return tuple(dict.fromkeys(name for name in names if name is not None))


# --- cells ------------------------------------------------------------------------------------------------------------


def _show_field(field: Field) -> CellText:
    text = make_text(field)
    return lambda line, now: StyledText(clean_line(text(line.node.row, now)), "ended" if line.node.over else "")


def _find_text(name: str, stale: Collection[str]) -> CellText:
    if name == "cluster" and stale:
        return _mark_stale(stale)
    return _SPECIAL.get(name) or _show_field(FIELDS[name])


def _mark_stale(stale: Collection[str]) -> CellText:
    """The cluster, with a mark where the line tells what was."""
    plain = _show_field(FIELDS["cluster"])

    def show(line: Line, now: float) -> StyledText:
        cell = plain(line, now)
        return StyledText(f"{cell.text}?", "bad") if line.node.row.cluster in stale else cell

    return show


def clean_line(text: str) -> str:
    """A text of any number of lines as one, fit for a terminal."""
    return clean_text(" ".join(text.split()) if "\n" in text else text)


def _show_tree(show: CellText, ascii_only: bool, watched: Container[LineKey]) -> CellText:
    sign = " *" if ascii_only else " ◉"
    folded, unfolded, inner, last = ("+ ", "- ", " |- ", " `- ") if ascii_only else ("▸ ", "▾ ", " ├ ", " └ ")

    def show_tree(line: Line, now: float) -> StyledText:
        cell = show(line, now)
        text = cell.text + sign if line.key in watched else cell.text
        if line.depth:
            return cell._replace(text=(last if line.last else inner) + text)
        head = "  " if line.folded is None else folded if line.folded else unfolded
        return cell._replace(text=head + text)

    return show_tree


def _show_id(line: Line, now: float) -> StyledText:
    text = job_id(line.node.row) if line.node.kind is Kind.WAITING else line.node.ref
    return StyledText(clean_text(text), "ended" if line.node.over else "accent")


def _show_state(line: Line, now: float) -> StyledText:
    state = line.node.row.state
    return StyledText(clean_text(CODES.get(state, state[:2])), style_of(state))


def _show_end(line: Line, now: float) -> StyledText:
    """A head tells how many of its members are how; a member where it runs, or why it does not.

    An elastic task tells how many members it has before.
    """
    node = line.node
    if node.kind in (Kind.GROUP, Kind.ARRAY):
        parts = [f"{count} {CODES.get(state, state)}" for state, count in node.tally.items()]
        reason = [_explain(node.row, now)] if node.row.state == "PENDING" else []
        return StyledText(clean_line(" ".join((", ".join(parts), *reason))), style_of(node.row.state))
    if node.row.state == "PENDING":
        return StyledText(clean_line(_explain(node.row, now)), "waiting")
    text = FIELDS["nodes_or_reason"].text(node.row, now)
    if node.row.members:
        text = ", ".join(filter(None, (f"{node.row.members} members", text)))
    return StyledText(clean_line(text), "" if not node.over else style_of(node.row.state))


def _explain(row: JobRow, now: float) -> str:
    """Why it waits, and when it starts where that is known: not before its own time, or by what its cluster says."""
    start = planned_start(row)
    if start is None or start <= now:
        return f"({row.reason})"
    word = "from" if row.begin is not None and start <= row.begin else "by"
    return f"{word} {_format_moment(start, now)} ({row.reason})"


def _format_moment(at: float, now: float) -> str:
    local = time.localtime(at)
    if at - now < DAY and local.tm_mday == time.localtime(now).tm_mday:
        return time.strftime("%H:%M", local)
    return time.strftime("%a %H:%M" if at - now < WEEK - DAY else "%-d %b", local)


_SPECIAL: dict[str, CellText] = {
    "id": _show_id,
    "state_code": _show_state,
    "nodes_or_reason": _show_end,
}
