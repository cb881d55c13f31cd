"""`span top --once`: the queue as the screen shows it, once, as text. Nothing here imports Textual."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from overspan.bridge.client.records import QueueChanges
from overspan.tui.options import TopOptions
from overspan.tui.queue.columns import DEFAULT, RIGHT, QueueColumn, make_columns
from overspan.tui.queue.headline import describe_counts, describe_troubles, explain_emptiness, write_frame, write_status
from overspan.tui.queue.order import SortOrder
from overspan.tui.queue.shown import Folding, count_shown, make_choice, show_queue
from overspan.tui.queue.styled_text import StyledText, fill_text
from overspan.tui.queue.tree import Line, QueueTree
from overspan.tui.queue.widths import fit_columns, measure_columns
from overspan.tui.terminal.ascii_text import to_ascii


def write_snapshot(changes: QueueChanges, options: TopOptions, width: int) -> list[list[StyledText]]:
    """The lines of the frame, each as parts with their styles, in so many cells; `width` 0 is any number.

    All lines of the queue are there, not only those that a screen has room for.
    """
    tree = QueueTree()
    tree.apply(changes.rows, whole=True)
    choice = make_choice(options)
    shown = show_queue(tree, choice, Folding(options.unfolded), lambda: changes.now)
    stale = {one.cluster for one in changes.stale if not one.partial}
    columns = make_columns(choice.columns, stale, options.ascii)
    measured = measure_columns(columns, shown.lines, changes.now, choice.order, {})
    fitted = fit_columns(columns, measured, width)
    counts = describe_counts(count_shown(tree, choice.scope.ended, changes.now), choice.scope.ended)
    troubles = describe_troubles(changes.stale, None, changes.now, changes.now)
    summary = shown.summary._replace(hidden_columns=fitted.hidden if choice.columns != DEFAULT else 0)
    head = [
        write_status(counts, troubles, width, options.ascii),
        write_frame(summary, width, options.ascii),
        _write_titles(fitted.widths, choice.order, options.ascii),
    ]
    lines = [_write_line(fitted.widths, line, changes.now, options.ascii) for line in shown.lines]
    empty = [[StyledText("  " + explain_emptiness(summary, keys=False), "dim")]]
    trouble = [[StyledText(choice.filter.trouble, "bad")]] if choice.filter.trouble else []
    written = [*head, *(lines or empty), *trouble]
    if not options.ascii:
        return written
    return [[part._replace(text=to_ascii(part.text)) for part in line] for line in written]


def join_line(parts: Sequence[StyledText], paint: Callable[[StyledText], str]) -> str:
    """A line as it is printed, without blanks at its end."""
    kept = list(parts)
    while kept and not kept[-1].text.strip():
        kept.pop()
    if not kept:
        return ""
    return "".join(map(paint, [*kept[:-1], kept[-1]._replace(text=kept[-1].text.rstrip())]))


Widths = Sequence[tuple[QueueColumn, int]]


def _write_titles(widths: Widths, order: SortOrder, ascii_only: bool) -> list[StyledText]:
    rising, falling = ("^", "v") if ascii_only else ("▲", "▼")
    arrows = {key.field: falling if key.falling else rising for key in order[:1]}
    titles = [StyledText(column.title + arrows.get(column.field, ""), "title") for column, _ in widths]
    return _fill(widths, titles, ascii_only)


def _write_line(widths: Widths, line: Line, now: float, ascii_only: bool) -> list[StyledText]:
    return _fill(widths, [column.show(line, now) for column, _ in widths], ascii_only)


def _fill(widths: Widths, cells: Sequence[StyledText], ascii_only: bool) -> list[StyledText]:
    """The cells in their widths, a blank between them."""
    parts: list[StyledText] = []
    for (column, width), cell in zip(widths, cells, strict=True):
        text = fill_text(cell.text, width, column.field in RIGHT, "~" if ascii_only else "…")
        parts += [cell._replace(text=text), StyledText(" ")]
    return parts[:-1]
