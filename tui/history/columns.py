"""The columns of the history: texts are those of squeue and sacct. Pure."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, NamedTuple

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.durations import DAY, format_timestamp
from overspan.bridge.model.state_words import CODES
from overspan.tui.queue.columns import style_of
from overspan.tui.queue.tree import Kind, Line, TreeNode
from overspan.tui.widgets.line_table import Cell, TableColumn

SORTED = ("id", "ended", "time_used", "state_code", "name", "user")
"""What the history is sorted by; newest first at first."""
_WIDE_TABLE = 120
_MEMBERS = 110
"""The width from which members, and reasons, have a column."""
_OLDER = {"id": "  older jobs", "name": "Enter reads"}


class OlderLine(NamedTuple):
    """The line behind so many, which stands for what was not read yet.

    Once there are more lines, it is another one: the cursor stays at its height, on the first of those that came.
    """

    behind: int
    asking: bool = False

    @property
    def key(self) -> tuple[str, int]:
        """The identity that the cursor is kept by."""
        return "older", self.behind


HistoryLine = Line | OlderLine
_Show = Callable[[Line, float], Cell]


def make_columns(
    width: int, is_partial: Callable[[int], bool], ascii_only: bool = False
) -> list[TableColumn[HistoryLine]]:
    """The columns for a table of so many cells; `is_partial` tells of which arrays not all elements were read."""
    when = 19 if width >= _WIDE_TABLE else 11
    name = _show_field("name") if width >= _MEMBERS else _show_name(is_partial)
    columns: list[tuple[str, str, int, int, _Show]] = [
        ("id", "  JOBID", 12, 0, _show_tree(ascii_only)),
        ("name", "NAME", 24 if width >= _MEMBERS else 12, 0, name),
        ("user", "USER", 8, 86, _show_field("user")),
        ("partition", "PARTITION", 9, 100, _show_field("partition")),
        ("cluster", "CLUSTER", 9, 69, _show_field("cluster")),
        ("state_code", "ST", 3, 0, _show_state),
        ("ended", "ENDED", when, 0, _show_end(width >= _WIDE_TABLE)),
        ("time_used", "ELAPSED", 10, 0, _show_field("time_used")),
        ("exit_code", "EXIT", 5, 0, _show_exit),
        ("reason", "MEMBERS, REASON", 8, _MEMBERS, _show_members(is_partial)),
    ]
    return [
        TableColumn(
            field,
            title,
            size,
            _of_jobs(field, show),
            right=field == "time_used",
            wide=field == ("reason" if width >= _MEMBERS else "name"),
            from_width=least,
            ticks=field == "time_used",
        )
        for field, title, size, least, show in columns
    ]


def _family_of(row: JobRow) -> int:
    return row.array_id or row.id


def sort_key(name: str, now: float) -> Callable[[JobRow], Any]:
    """The order of the view: what is newest, longest or latest comes first."""
    if name == "ended":
        return lambda row: (-(row.ended_at or now), -_family_of(row))
    if name == "time_used":
        find = FIELDS["time_used"].sort
        return lambda row: (-find(row, now) if find is not None else 0.0, -_family_of(row))
    if name == "state_code":
        return lambda row: (row.state, -_family_of(row))
    if name in ("name", "user"):
        return lambda row: (getattr(row, name), -_family_of(row))
    return lambda row: -_family_of(row)


def _of_jobs(name: str, show: _Show) -> Callable[[HistoryLine, float], Cell]:
    """The line of what is older says so in its first columns."""

    def cell(line: HistoryLine, now: float) -> Cell:
        if isinstance(line, OlderLine):
            return Cell("  asking..." if line.asking and name == "id" else _OLDER.get(name, ""), "accent")
        return show(line, now)

    return cell


def _show_field(name: str) -> _Show:
    text = FIELDS[name].text
    return lambda line, now: Cell(clean_text(text(line.node.row, now)), "text")


def _show_tree(ascii_only: bool) -> _Show:
    folded, unfolded, inner, last = ("+ ", "- ", " |- ", " `- ") if ascii_only else ("▸ ", "▾ ", " ├ ", " └ ")

    def show_tree(line: Line, now: float) -> Cell:
        head = "  " if line.folded is None else folded if line.folded else unfolded
        mark = (last if line.last else inner) if line.depth else head
        return Cell(mark + clean_text(line.node.ref), "accent")

    return show_tree


def _show_state(line: Line, now: float) -> Cell:
    state = line.node.row.state
    return Cell(clean_text(CODES.get(state, state[:2])), style_of(state))


def _show_end(whole: bool) -> _Show:
    def show(line: Line, now: float) -> Cell:
        if not line.node.over:
            return Cell("-", "dim")
        return Cell(format_end(line.node.row.ended_at, now, whole), "text")

    return show


def format_end(at: float | None, now: float, whole: bool = False) -> str:
    """When something was: in full, or in eleven letters that leave out what can be guessed."""
    if at is None:
        return "-"
    if whole:
        return format_timestamp(at)
    local, today = time.localtime(at), time.localtime(now)
    if abs(now - at) < DAY and local.tm_mday == today.tm_mday:
        return time.strftime("%H:%M:%S", local)
    return time.strftime("%m-%d %H:%M" if local.tm_year == today.tm_year else "%Y-%m-%d", local)


def _show_exit(line: Line, now: float) -> Cell:
    """As sacct: the exit code and the signal. A head has none of its own."""
    row = line.node.row
    if not line.node.over or line.node.kind in (Kind.GROUP, Kind.ARRAY):
        return Cell("-", "dim")
    return Cell(f"{row.exit_code}:{row.signal}", "bad" if row.exit_code or row.signal else "dim")


def _show_members(is_partial: Callable[[int], bool]) -> _Show:
    def show(line: Line, now: float) -> Cell:
        node = line.node
        if node.kind in (Kind.GROUP, Kind.ARRAY):
            return Cell(clean_text(count_members(node, is_partial)), style_of(node.row.state))
        return Cell(clean_text("" if node.row.reason == "None" else node.row.reason), "dim")

    return show


def _show_name(is_partial: Callable[[int], bool]) -> _Show:
    def show(line: Line, now: float) -> Cell:
        node = line.node
        members = f": {count_members(node, is_partial)}" if node.kind in (Kind.GROUP, Kind.ARRAY) else ""
        return Cell(clean_text(node.row.name + members), "text")

    return show


def count_members(node: TreeNode, is_partial: Callable[[int], bool]) -> str:
    """How many of its members are how, as far as they were read."""
    counts = ", ".join(f"{count} {CODES.get(state, state)}" for state, count in node.tally.items())
    return f"{counts} + more" if is_partial(node.key.job) else counts
