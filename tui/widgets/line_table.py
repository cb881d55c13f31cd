"""A table painted line by line: ten thousand rows cost what the visible ones cost.

Textual's DataTable measures and lays out every cell, and parses texts as markup. This widget holds a list of lines
that somebody else has put in order, and paints those in sight. Cursor and marks are kept by the lines' keys, so that
they stay with their job whatever happens to the order.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, ClassVar, Generic, NamedTuple, Protocol, TypeVar

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import BindingType
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import reactive
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from overspan.tui.keys import bind

_CACHED = 400
"""Painted lines that are kept: several screens."""


class TableLine(Protocol):
    """What a line of the table has: a key that stays with it."""

    @property
    def key(self) -> Hashable: ...


LineT = TypeVar("LineT", bound=TableLine)


class Cell(NamedTuple):
    """A text, free of control characters, and the name of its style: a component class without `line-table--`."""

    text: str
    style: str = ""


class Column(NamedTuple, Generic[LineT]):
    """A column: its title, its width in cells, and what it shows of a line at a time (epoch seconds).

    `wide` takes what room is left. `from_width` is the least width of the table at which it is shown. What `ticks`
    changes with the time alone and is painted anew each second.
    """

    name: str
    title: str
    width: int
    cell: Callable[[LineT, float], Cell]
    right: bool = False
    wide: bool = False
    from_width: int = 0
    ticks: bool = False


class LineTable(ScrollView, Generic[LineT], can_focus=True, inherit_bindings=False):
    """A table of lines with a cursor and marks."""

    ALLOW_SELECT = True
    DEFAULT_CSS = """
    LineTable { scrollbar-size: 1 1; overflow-x: hidden; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "line-table--" + name
        for name in ("header", "cursor", "marked", "dim", "good", "busy", "waiting", "bad", "ended", "accent", "text")
    }
    BINDINGS: ClassVar[list[BindingType]] = [*bind("list")]

    sort_column: reactive[str] = reactive("", repaint=False)
    sort_reverse: reactive[bool] = reactive(False, repaint=False)

    class Moved(Message):
        """The cursor is on another line, or on none."""

        def __init__(self, table: LineTable[Any]) -> None:
            self.table = table
            super().__init__()

    class Opened(Message):
        """Enter was pressed, or a line was clicked twice."""

        def __init__(self, table: LineTable[Any]) -> None:
            self.table = table
            super().__init__()

    class Sorted(Message):
        """A title was clicked."""

        def __init__(self, column: str) -> None:
            self.column = column
            super().__init__()

    def __init__(self, columns: Sequence[Column[LineT]], clock: Callable[[], float], **options: str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._columns = tuple(columns)
        self._clock = clock
        self._lines: Sequence[LineT] = ()
        self._places: dict[Hashable, int] = {}
        self._cursor: Hashable | None = None
        self._anchor: Hashable | None = None
        self.marks: set[Hashable] = set()
        self._painted: LRUCache[object, Strip] = LRUCache(_CACHED)
        self._layout: tuple[tuple[Column[LineT], int], ...] = ()
        self.empty = ""
        """What is said in place of lines."""

    # --- content ------------------------------------------------------------------------------------------------------

    @property
    def lines(self) -> Sequence[LineT]:
        """The lines in their order."""
        return self._lines

    @property
    def current(self) -> LineT | None:
        """The line with the cursor."""
        place = self._place()
        return None if place is None else self._lines[place]

    @property
    def marked(self) -> list[LineT]:
        """The marked lines that are shown, in their order."""
        return [line for line in self._lines if line.key in self.marks]

    def set_columns(self, columns: Sequence[Column[LineT]]) -> None:
        """Show other columns."""
        self._columns = tuple(columns)
        self._lay_out()

    def set_lines(self, lines: Sequence[LineT]) -> None:
        """Show these lines; the cursor stays on its line, and at its height on the screen.

        Where the cursor's line is gone, the one that took its place has it.
        """
        before = self._place()
        height = 0 if before is None else before - self.scroll_offset.y
        self._lines = lines
        self._places = {line.key: place for place, line in enumerate(lines)}
        self.virtual_size = Size(self.size.width, len(lines) + 1)
        after = self._places.get(self._cursor) if self._cursor is not None else None
        if after is None and lines:
            after = min(before or 0, len(lines) - 1)
            self._cursor = lines[after].key
            self.post_message(self.Moved(self))
        elif not lines:
            self._cursor = None
            self.post_message(self.Moved(self))
        if after is not None and before is not None and after != before:
            self.scroll_to(y=max(0, after - height), animate=False, force=True)
        self.refresh()

    def refresh_keys(self, keys: set[Hashable]) -> None:
        """Paint the lines with these keys again, where they are in sight."""
        top, height = self.scroll_offset.y, self.size.height
        for offset, line in enumerate(self._lines[top : top + height - 1]):
            if line.key in keys:
                self.refresh(Region(0, offset + 1, self.size.width, 1))

    def move_to(self, key: Hashable) -> bool:
        """Put the cursor on a line; False where it is not shown."""
        place = self._places.get(key)
        if place is not None:
            self._go(place)
        return place is not None

    def tick(self) -> None:
        """Paint what changes with the time: the visible lines, where a column ticks."""
        if any(column.ticks for column, _ in self._layout):
            self.refresh(Region(0, 1, self.size.width, min(len(self._lines), self.size.height - 1)))

    # --- painting -----------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Share the width among the columns anew."""
        del event
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.size.width
        shown = [column for column in self._columns if column.from_width <= width]
        wide = [column for column in shown if column.wide]
        rest = width - sum(column.width + 1 for column in shown)
        extra = max(0, rest) // len(wide) if wide else 0
        self._layout = tuple((column, column.width + (extra if column.wide else 0)) for column in shown)
        self._painted.clear()
        self.virtual_size = Size(width, len(self._lines) + 1)
        self.refresh()

    def notify_style_update(self) -> None:
        """Forget what was painted in other colours."""
        self._painted.clear()
        super().notify_style_update()

    def render_line(self, y: int) -> Strip:
        """One line of the screen: the titles, then lines from the scrolled place on."""
        width = self.size.width
        if y == 0:
            return self._paint_header(width)
        place = self.scroll_offset.y + y - 1
        if place >= len(self._lines):
            text = self.empty if not self._lines and y == 2 else ""
            return Strip([Segment(set_cell_size("  " + text, width), self._style("dim"))], width)
        return self._paint_line(place, width).apply_offsets(0, place)

    def _paint_header(self, width: int) -> Strip:
        style = self._style("header")
        parts = []
        for column, size in self._layout:
            arrow = ("▼" if self.sort_reverse else "▲") if column.name == self.sort_column else ""
            parts.append(Segment(_fit(column.title + arrow, size, column.right) + " ", style))
        return Strip(parts).adjust_cell_length(width, style)

    def _paint_line(self, place: int, width: int) -> Strip:
        line = self._lines[place]
        on_cursor, marked = line.key == self._cursor, line.key in self.marks
        cells = tuple(column.cell(line, self._clock()) for column, _ in self._layout)
        cache = (cells, on_cursor and self.has_focus, on_cursor, marked)
        strip = self._painted.get(cache)
        if strip is None:
            strip = self._painted[cache] = self._make_strip(cells, on_cursor, marked, width)
        return strip

    def _make_strip(self, cells: Sequence[Cell], on_cursor: bool, marked: bool, width: int) -> Strip:
        over = self._overlay("cursor") if on_cursor else self._overlay("marked") if marked else Style.null()
        parts = []
        for (column, size), cell in zip(self._layout, cells, strict=True):
            style = self._style(cell.style or "text") + over
            parts.append(Segment(_fit(cell.text, size, column.right) + " ", style))
        return Strip(parts).adjust_cell_length(width, self._style("text") + over)

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style("line-table--" + name)

    def _overlay(self, name: str) -> Style:
        """Only what a style sets itself, to lie over another one."""
        return self.get_component_rich_style("line-table--" + name, partial=True)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that the mouse has selected."""
        rows = (" ".join(column.cell(line, self._clock()).text for column, _ in self._layout) for line in self._lines)
        return selection.extract("\n".join(rows)), "\n"

    # --- cursor and marks ---------------------------------------------------------------------------------------------

    def _place(self) -> int | None:
        return None if self._cursor is None else self._places.get(self._cursor)

    def _go(self, place: int) -> None:
        """Put the cursor on a line and bring it into sight."""
        if not self._lines:
            return
        before, place = self._place(), max(0, min(place, len(self._lines) - 1))
        self._cursor = self._lines[place].key
        top, room = self.scroll_offset.y, max(1, self.size.height - 1)
        if place < top:
            self.scroll_to(y=place, animate=False, force=True)
        elif place >= top + room:
            self.scroll_to(y=place - room + 1, animate=False, force=True)
        for changed in {before, place} - {None}:
            self.refresh(Region(0, (changed or 0) - self.scroll_offset.y + 1, self.size.width, 1))
        if before != place:
            self.post_message(self.Moved(self))

    def action_move(self, by: int) -> None:
        """Move the cursor by lines."""
        self._go((self._place() or 0) + by)

    def action_page(self, pages: float) -> None:
        """Move the cursor by parts of a screen."""
        self._go((self._place() or 0) + int((self.size.height - 2) * pages))

    def action_first(self) -> None:
        """Move the cursor to the first line."""
        self._go(0)

    def action_last(self) -> None:
        """Move the cursor to the last line."""
        self._go(len(self._lines) - 1)

    def action_open(self) -> None:
        """Tell that the line is wanted."""
        if self._cursor is not None:
            self.post_message(self.Opened(self))

    def action_mark(self) -> None:
        """Mark the line, or take its mark away, and go to the next one."""
        if self._cursor is not None:
            self.marks ^= {self._cursor}
            self._anchor = self._cursor
            self.action_move(1)
            self.refresh()

    def action_mark_range(self) -> None:
        """Mark all from the last mark to the cursor."""
        place = self._place()
        if place is None:
            return
        begin = self._places.get(self._anchor, place) if self._anchor is not None else place
        low, high = sorted((begin, place))
        self.marks |= {line.key for line in self._lines[low : high + 1]}
        self._anchor = self._cursor
        self.refresh()

    def action_mark_all(self) -> None:
        """Mark every line that is shown."""
        self.marks |= set(self._places)
        self.refresh()

    def action_unmark(self) -> None:
        """Take all marks away."""
        self.marks.clear()
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """A line takes the cursor, twice opens it; a title sorts."""
        if event.y == 0:
            self._click_title(event.x)
            return
        place = self.scroll_offset.y + event.y - 1
        if place < len(self._lines):
            self._go(place)
            if event.chain == 2:
                self.action_open()

    def _click_title(self, x: int) -> None:
        begin = 0
        for column, size in self._layout:
            if begin <= x <= begin + size:
                self.post_message(self.Sorted(column.name))
            begin += size + 1


def _fit(text: str, width: int, right: bool) -> str:
    """The text in so many cells; what is cut ends in an ellipsis."""
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, max(0, width - 1)) + ("…" if width else "")
    pad = " " * (width - size)
    return pad + text if right else text + pad
