"""A table painted line by line: ten thousand rows cost what the visible ones cost.

Textual's DataTable measures and lays out every cell, and parses texts as markup. This widget is given a list of
sorted lines and paints those in sight, each again only when it reads otherwise. Cursor and marks are kept by the
lines' keys, so that they stay with their job when the order changes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Hashable, Sequence
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

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.keyboard.keys import bind

_CACHED = 400
"""Painted lines that are kept: several screens."""

_LEAST_WIDE = 8
"""Cells that a wide column keeps while there is room for all columns."""


class TableLine(Protocol):
    """What a line of the table has: a key that stays with it."""

    @property
    def key(self) -> Hashable: ...


LineT = TypeVar("LineT", bound=TableLine)


class Cell(NamedTuple):
    """A text, free of control characters, and the name of its style: a component class without `line-table--`."""

    text: str
    style: str = ""


class TableColumn(NamedTuple, Generic[LineT]):
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


class LineLook(NamedTuple):
    """All that the painting of a line depends on, except the style sheet and the widths."""

    cells: tuple[Cell, ...]
    on_cursor: bool
    marked: bool


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

    class Widened(Message):
        """There is another width to share: the terminal has changed, or the details have come or gone."""

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

    def __init__(self, columns: Sequence[TableColumn[LineT]], clock: Callable[[], float], **options: str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._columns = tuple(columns)
        self._clock = clock
        self._lines: Sequence[LineT] = ()
        self._cursor: Hashable | None = None
        self._cursor_place = 0
        """Where the cursor's line was found last; it is looked for from there."""
        self._anchor: Hashable | None = None
        self.marks: set[Hashable] = set()
        self._painted: LRUCache[LineLook, Strip] = LRUCache(_CACHED)
        self._shown: dict[int, LineLook | str] = {}
        """How each line of the screen was painted last."""
        self._layout: tuple[tuple[TableColumn[LineT], int], ...] = ()
        self.empty = ""
        """What is said in place of lines."""
        self.ascii_only = False
        """Whether the table's own marks keep to ASCII."""

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
        return [line for line in self._lines if line.key in self.marks] if self.marks else []

    def set_columns(self, columns: Sequence[TableColumn[LineT]]) -> None:
        """Show other columns."""
        self._columns = tuple(columns)
        self._lay_out()

    def set_lines(self, lines: Sequence[LineT]) -> None:
        """Show these lines. The cursor stays on its line, which stays at its height on the screen.

        Two exceptions: a view that begins with the first line goes on to do so while the cursor is in sight, because
        what is new comes there; and where the cursor's line is gone, the one that took its place has it.
        """
        if lines is not self._lines:
            anchor, height = self._find_anchor()
            before = self._place()
            self._lines = lines
            if len(lines) + 1 != self.virtual_size.height:
                self.virtual_size = Size(self.size.width, len(lines) + 1)
            self._keep_cursor(before)
            self._keep_height(anchor, height)
        self.refresh_changed()

    def _find_anchor(self) -> tuple[Hashable | None, int]:
        """The line that is to keep its height on the screen: the cursor's, or the first where that is out of sight."""
        place, top = self._place(), self.scroll_offset.y
        if place is not None and top <= place < top + self._room:
            return self._cursor, place - top
        return (self._lines[top].key, 0) if top < len(self._lines) else (None, 0)

    def _keep_cursor(self, before: int | None) -> None:
        """Find the cursor's line again, or give the cursor to the line in its place."""
        lines = self._lines
        if self._place() is None:
            self._cursor_place = min(before or 0, max(0, len(lines) - 1))
            self._cursor = lines[self._cursor_place].key if lines else None
            self.post_message(self.Moved(self))

    def _keep_height(self, anchor: Hashable | None, height: int) -> None:
        """Scroll so that a line is at its height again."""
        place = self._cursor_place if anchor == self._cursor else _find_key(self._lines, anchor, self.scroll_offset.y)
        stays = not self.scroll_offset.y and self._cursor_place < self._room
        if place is not None and not stays and place - height != self.scroll_offset.y:
            self.scroll_to(y=max(0, place - height), animate=False, force=True)

    def refresh_keys(self, keys: set[Hashable]) -> None:
        """Paint the lines with these keys again, where they are in sight."""
        top = self.scroll_offset.y
        for offset, line in enumerate(self._lines[top : top + self._room], 1):
            if line.key in keys:
                self._shown.pop(offset, None)
                self.refresh(Region(0, offset, self.size.width, 1))

    def refresh_changed(self) -> None:
        """Paint the lines in sight that read otherwise than when they were painted last."""
        for y in range(1, self.size.height):
            if self._shown.get(y) != self._look_at(self.scroll_offset.y + y - 1, y):
                self.refresh(Region(0, y, self.size.width, 1))

    def move_to(self, key: Hashable) -> bool:
        """Put the cursor on a line; False where it is not shown."""
        place = _find_key(self._lines, key, self._cursor_place)
        if place is not None:
            self._go(place)
        return place is not None

    def tick(self) -> None:
        """Paint what changes with the time: the lines in sight of which a column that ticks reads otherwise."""
        ticking = [(number, column) for number, (column, _) in enumerate(self._layout) if column.ticks]
        top, now = self.scroll_offset.y, self._clock()
        for y, line in enumerate(self._lines[top : top + self._room] if ticking else (), 1):
            look = self._shown.get(y)
            if isinstance(look, LineLook) and any(look.cells[at] != column.cell(line, now) for at, column in ticking):
                self.refresh(Region(0, y, self.size.width, 1))

    # --- painting -----------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Share the width among the columns anew."""
        del event
        self._lay_out()
        self.post_message(self.Widened(self))

    def _lay_out(self) -> None:
        width = self.size.width
        shown = [column for column in self._columns if column.from_width <= width]
        sizes = share_width([column.width for column in shown], [column.wide for column in shown], width)
        self._layout = tuple(zip(shown, sizes, strict=True))
        self._painted.clear()
        self._shown.clear()
        self.virtual_size = Size(width, len(self._lines) + 1)
        self._bring_into_sight()
        self.refresh()

    def watch_sort_column(self) -> None:
        """Show by which column the lines are sorted."""
        self.refresh(Region(0, 0, self.size.width, 1))

    def watch_sort_reverse(self) -> None:
        """Show which way they are sorted."""
        self.refresh(Region(0, 0, self.size.width, 1))

    def notify_style_update(self) -> None:
        """Forget what was painted in other colours."""
        self._painted.clear()
        super().notify_style_update()

    @property
    def _room(self) -> int:
        """How many lines have room below the titles."""
        return max(1, self.size.height - 1)

    def render_line(self, y: int) -> Strip:
        """One line of the screen: the titles, then lines from the scrolled place on."""
        width = self.size.width
        if y == 0:
            return self._paint_header(width)
        place = self.scroll_offset.y + y - 1
        look = self._shown[y] = self._look_at(place, y)
        if isinstance(look, str):
            return Strip([Segment(self._fit("  " + look, width, False), self._style("dim"))], width)
        strip = self._paint_line(look, width)
        selection = self.text_selection
        span = None if selection is None else selection.get_span(place)
        return (strip if span is None else self._show_selected(strip, *span)).apply_offsets(0, place)

    def _look_at(self, place: int, y: int) -> LineLook | str:
        """How a line looks; below the last one, the text there."""
        if place >= len(self._lines):
            return self.empty if not self._lines and y == 2 else ""
        return self._look_of(self._lines[place])

    def _look_of(self, line: LineT) -> LineLook:
        now = self._clock()
        cells = tuple([column.cell(line, now) for column, _ in self._layout])
        return LineLook(cells, line.key == self._cursor, line.key in self.marks)

    def _paint_header(self, width: int) -> Strip:
        style, arrows = self._style("header"), "^v" if self.ascii_only else "▲▼"
        parts = []
        for column, size in self._layout:
            arrow = arrows[self.sort_reverse] if column.name == self.sort_column else ""
            parts.append(Segment(self._fit(column.title + arrow, size, column.right) + " ", style))
        return Strip(parts).adjust_cell_length(width, style)

    def _paint_line(self, look: LineLook, width: int) -> Strip:
        strip = self._painted.get(look)
        if strip is None:
            strip = self._painted[look] = self._make_strip(look, width)
        return strip

    def _make_strip(self, look: LineLook, width: int) -> Strip:
        name = "cursor" if look.on_cursor else "marked" if look.marked else ""
        over = self._overlay(name) if name else Style.null()
        if over.reverse:
            # What is dim on the terminal's own ground cannot be read on its foreground.
            over += Style(dim=False)
        parts = []
        for (column, size), cell in zip(self._layout, look.cells, strict=True):
            style = self._style(cell.style or "text") + over
            parts.append(Segment(self._fit(cell.text, size, column.right) + " ", style))
        return Strip(parts).adjust_cell_length(width, self._style("text") + over)

    def _fit(self, text: str, width: int, right: bool) -> str:
        return fit_text(text, width, right, "~" if self.ascii_only else "…")

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style("line-table--" + name)

    def _overlay(self, name: str) -> Style:
        """Only what a style sets itself, to lie over another one."""
        return self.get_component_rich_style("line-table--" + name, partial=True)

    # --- selected text ------------------------------------------------------------------------------------------------

    def _show_selected(self, strip: Strip, begin: int, end: int) -> Strip:
        """The line with a part of its characters in the colours of selected text; -1 is its end."""
        text = strip.text
        before, inside = cell_len(text[:begin]), cell_len(text[: end if end >= 0 else None])
        first, selected, last = strip.divide([before, inside, strip.cell_length])
        style = self.screen.get_component_rich_style("screen--selection")
        painted = Strip([Segment(each.text, (each.style or Style()) + style) for each in selected])
        return Strip.join([first, painted, last])

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint what is selected, and what is not any more."""
        self.refresh()

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that the mouse has selected, as it is painted; lines out of sight are painted for it."""
        first = 0 if selection.start is None else selection.start.y
        last = len(self._lines) - 1 if selection.end is None else min(selection.end.y, len(self._lines) - 1)
        texts = []
        for place in range(first, last + 1):
            text = self._paint_line(self._look_of(self._lines[place]), self.size.width).text
            begin, end = selection.get_span(place) or (0, 0)
            texts.append(text[begin : end if end >= 0 else None].rstrip())
        return "\n".join(texts), "\n"

    # --- cursor and marks ---------------------------------------------------------------------------------------------

    def _place(self) -> int | None:
        """Where the cursor's line is."""
        place = None if self._cursor is None else _find_key(self._lines, self._cursor, self._cursor_place)
        if place is not None:
            self._cursor_place = place
        return place

    def _go(self, place: int) -> None:
        """Put the cursor on a line and bring it into sight."""
        if not self._lines:
            return
        before, place = self._cursor, max(0, min(place, len(self._lines) - 1))
        self._cursor, self._cursor_place = self._lines[place].key, place
        if not self._bring_into_sight():
            self.refresh_changed()
        if before != self._cursor:
            self.post_message(self.Moved(self))

    def _bring_into_sight(self) -> bool:
        """Scroll as far as it takes to see the cursor's line, which paints all lines; whether that was needed."""
        place, top, room = self._place(), self.scroll_offset.y, self._room
        hidden = place is not None and not top <= place < top + room
        if place is not None and hidden:
            self.scroll_to(y=place if place < top else place - room + 1, animate=False, force=True)
        return hidden

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
            self.refresh_changed()

    def action_extend(self, by: int) -> None:
        """Mark the line and the next one, and go there."""
        if self._cursor is not None:
            self.marks.add(self._cursor)
            self.action_move(by)
            self.marks.add(self._cursor)
            self._anchor = self._cursor
            self.refresh_changed()

    def action_mark_range(self) -> None:
        """Mark all from the last mark to the cursor."""
        place = self._place()
        if place is None:
            return
        begin = _find_key(self._lines, self._anchor, place) if self._anchor is not None else place
        low, high = sorted((place if begin is None else begin, place))
        self.marks |= {line.key for line in self._lines[low : high + 1]}
        self._anchor = self._cursor
        self.refresh_changed()

    def action_mark_all(self) -> None:
        """Mark every line that is shown."""
        self.marks |= {line.key for line in self._lines}
        self.refresh_changed()

    def drop_marks(self, keys: Collection[Hashable]) -> None:
        """Take the marks of these lines away."""
        self.marks.difference_update(keys)
        self.refresh_changed()

    def action_unmark(self) -> None:
        """Take all marks away."""
        self.marks.clear()
        self._anchor = None
        self.refresh_changed()

    def on_click(self, event: events.Click) -> None:
        """A line takes the cursor, twice opens it, with ctrl it is marked; a title sorts. Selecting moves nothing."""
        if event.y == 0:
            self._click_title(event.x)
            return
        place = self.scroll_offset.y + event.y - 1
        if place < len(self._lines) and self.text_selection is None:
            self._go(place)
            if event.ctrl and self._cursor is not None:
                self.marks ^= {self._cursor}
                self._anchor = self._cursor
                self.refresh_changed()
            elif event.chain == 2:
                self.action_open()

    def _click_title(self, x: int) -> None:
        begin = 0
        for column, size in self._layout:
            if begin <= x <= begin + size:
                self.post_message(self.Sorted(column.name))
            begin += size + 1


def share_width(widths: Sequence[int], wide: Sequence[bool], width: int) -> list[int]:
    """The widths of columns, each with a blank behind it, in so much room.

    What is left goes to the wide ones. What is missing is taken from the wide ones, the last first, then from all.
    """
    sizes = list(widths)
    rest = width - sum(sizes) - len(sizes)
    givers = [number for number, is_wide in enumerate(wide) if is_wide]
    for place, number in enumerate(givers if rest > 0 else ()):
        sizes[number] += rest * (place + 1) // len(givers) - rest * place // len(givers)
    for least, numbers in ((_LEAST_WIDE, givers), (0, range(len(sizes)))):
        for number in reversed(numbers):
            cut = min(max(0, -rest), max(0, sizes[number] - least))
            sizes[number] -= cut
            rest += cut
    return sizes


def _find_key(lines: Sequence[TableLine], key: Hashable, near: int) -> int | None:
    """Where the line with a key is: looked for from a place outwards, because changes move lines a little."""
    below, above = range(min(near, len(lines)), len(lines)), range(min(near, len(lines)) - 1, -1, -1)
    for place in itertools.chain.from_iterable(itertools.zip_longest(below, above)):
        if place is not None and lines[place].key == key:
            return int(place)
    return None


def fit_text(text: str, width: int, right: bool = False, cut: str = "…") -> str:
    """The text in so many cells; what is cut ends in a mark."""
    if not text.isprintable():
        # Makers of cells clean them; the terminal must not depend on that.
        text = clean_text(text)
    size = cell_len(text)
    if size > width:
        return set_cell_size(text, max(0, width - 1)) + (cut if width else "")
    pad = " " * (width - size)
    return pad + text if right else text + pad
