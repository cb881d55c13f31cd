"""The widget that paints lines of logs: what is on the screen costs something, what is not costs nothing.

It is no list that scrolls: its place is a line of a log and one of its rows, so that lines may come and go above.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import ClassVar

from rich.color import Color
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.cache import LRUCache
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from overspan.tui.logs.choice import name_source
from overspan.tui.logs.deadline import TooSlow, deadline
from overspan.tui.logs.document import LogRow
from overspan.tui.logs.layout import (
    NUMBER_WIDTH,
    TIME_WIDTH,
    LogLayout,
    ViewOptions,
    ViewPlace,
    find_row,
    format_time,
    name_of,
)
from overspan.tui.logs.lines import Sgr, StyledPart, cut_parts, show_parts

_CACHED = 400
MATCH_SECONDS = 0.05
"""For marking the matches in one line."""
_NAMES = ("one", "two", "three", "four", "five")


class LogView(Widget, can_focus=True):
    """Lines of logs, from a place on."""

    ALLOW_SELECT = True
    DEFAULT_CSS = """
    LogView { height: 1fr; background: $background; color: $foreground; }
    LogView .log-view--gutter { color: $text-muted; }
    LogView .log-view--mark { color: $text-accent; text-style: bold; }
    LogView .log-view--match { color: $background; background: $warning; }
    LogView .log-view--hit { color: $background; background: $success; text-style: bold; }
    LogView:ansi .log-view--match { color: $foreground; background: ansi_default; text-style: bold underline; }
    LogView:ansi .log-view--hit { color: $foreground; background: ansi_default; text-style: bold reverse; }
    LogView .log-view--error { color: $text-error; }
    LogView .log-view--bar { color: $text-disabled; }
    LogView .log-view--thumb { color: $text-muted; }
    LogView .log-view--empty { color: $text-muted; }
    LogView .log-view--one { color: $text-accent; }
    LogView .log-view--two { color: $text-success; }
    LogView .log-view--three { color: $text-secondary; }
    LogView .log-view--four { color: $text-warning; }
    LogView .log-view--five { color: $text-primary; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "log-view--" + name for name in ("gutter", "mark", "match", "hit", "error", "bar", "thumb", "empty", *_NAMES)
    }

    class Scrolled(Message):
        """The user has moved the lines, by so many rows."""

        def __init__(self, by: int) -> None:
            self.by = by
            super().__init__()

    class Pointed(Message):
        """The user has clicked a place of the bar on the right, from 0 to 1."""

        def __init__(self, share: float) -> None:
            self.share = share
            super().__init__()

    def __init__(self, *, ascii: bool = False, **options: str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._signs = (":", "#", "-") if ascii else ("│", "┃", "─")
        self.following = True
        self.empty = ""
        """What is said in place of lines."""
        self._said = ""
        self._thumb = (0, 0)
        self.slow = False
        """Whether matches are not marked, since the pattern takes too long."""
        self._rows: Sequence[LogRow] = ()
        self._top = ViewPlace(0)
        self._left = 0
        self._options = ViewOptions()
        self._pattern: re.Pattern[str] | None = None
        self._hit: LogRow | None = None
        self._painted: LRUCache[object, Strip] = LRUCache(_CACHED)
        self._groups: dict[str, int] = {}
        self._screen_rows: list[ViewPlace] = []
        self._shown: list[tuple[LogRow, int]] = []
        self._layout_now = LogLayout((), self._options, 80, 24)

    # --- content ------------------------------------------------------------------------------------------------------

    @property
    def rows(self) -> Sequence[LogRow]:
        """The lines, those out of sight too."""
        return self._rows

    @property
    def options(self) -> ViewOptions:
        """What is shown of a line."""
        return self._options

    @property
    def first_row(self) -> LogRow | None:
        """The line at the top."""
        return self._rows[self._top.row] if self._top.row < len(self._rows) else None

    @property
    def last_row(self) -> LogRow | None:
        """The line at the bottom."""
        return self._rows[self._screen_rows[-1].row] if self._screen_rows else None

    @property
    def at_begin(self) -> bool:
        """Whether there is little above."""
        return self._top.row < self.size.height

    @property
    def at_end(self) -> bool:
        """Whether the last line is in sight."""
        return not self._rows or self._top >= self._layout_now.find_last()

    @property
    def filled(self) -> bool:
        """Whether the lines fill the screen."""
        return len(self._screen_rows) >= self.size.height

    @property
    def rows_above(self) -> int:
        """Lines above the screen."""
        return self._top.row

    @property
    def rows_below(self) -> int:
        """Lines below the screen."""
        return max(0, len(self._rows) - 1 - self._screen_rows[-1].row) if self._screen_rows else 0

    def set_rows(self, rows: Sequence[LogRow]) -> None:
        """Show these lines; what is at the top stays there, or at the bottom where the end is followed."""
        top = self.first_row
        if rows is self._rows and self.empty == self._said:
            return
        if not rows:
            self._forget()
        self._rows, self._said = rows, self.empty
        if top is not None and not self.following:
            place = find_row(rows, top, self._top.row)
            self._top = ViewPlace(max(0, place), self._top.part)
        self._lay_out()

    def has(self, row: LogRow) -> bool:
        """Whether a line is among them."""
        place = find_row(self._rows, row, self._top.row)
        return 0 <= place < len(self._rows) and self._rows[place].is_same(row)

    def set_options(self, options: ViewOptions) -> None:
        """Show more, or less, of each line."""
        self._options = options
        self._forget()
        self._lay_out()

    def set_groups(self, groups: Iterable[str]) -> None:
        """The tasks, or elements, that have a colour each, in their order."""
        found = {name: place for place, name in enumerate(dict.fromkeys(groups))}
        if found != self._groups:
            self._groups = found
            self._forget()
            self.refresh()

    def set_pattern(self, pattern: re.Pattern[str] | None) -> None:
        """Mark what matches."""
        self._pattern, self.slow, self._hit = pattern, False, None
        self._forget()
        self._lay_out()

    def show_row(self, row: LogRow, *, hit: bool = False) -> None:
        """Bring a line into the upper third of the screen, unless it is in sight; a hit is marked."""
        self.following = False
        if hit:
            self._hit = row
            self._forget()
        place = find_row(self._rows, row, self._top.row)
        if not any(one.row == place for one in self._screen_rows[:-1]):
            self._top = self._layout_now.move(ViewPlace(max(0, place)), -(self.size.height // 3))
        self._lay_out()

    def go_to_begin(self) -> None:
        """Show the first line there is."""
        self._top, self.following = ViewPlace(0), False
        self._lay_out()

    def go_to_end(self) -> None:
        """Show the last line, and those that come."""
        self.following = True
        self._left = 0
        self._forget()
        self._lay_out()

    def go_to(self, place: int) -> None:
        """Put a line at the top."""
        self._top, self.following = ViewPlace(place), False
        self._lay_out()

    # --- moving -------------------------------------------------------------------------------------------------------

    def scroll_rows(self, by: int) -> None:
        """Move by rows of the screen. Upwards ends the following."""
        if by < 0:
            self.following = False
        self._top = self._layout_now.scroll(self._top, by)
        self._lay_out()
        self.post_message(self.Scrolled(by))

    def scroll_pages(self, pages: float) -> None:
        """Move by parts of a screen."""
        rows = max(1, int((self.size.height - 1) * abs(pages)))
        self.scroll_rows(rows if pages > 0 else -rows)

    def scroll_columns(self, by: int) -> None:
        """Move long lines to the side."""
        if not self._options.wrap:
            self._left = max(0, self._left + by)
            self._forget()
            self._lay_out()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """The wheel."""
        event.stop()
        self.scroll_rows(-3)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """The wheel."""
        event.stop()
        self.scroll_rows(3)

    def on_click(self, event: events.Click) -> None:
        """The bar on the right is a place of the log."""
        if event.x == self.size.width - 1:
            self.post_message(self.Pointed(event.y / max(1, self.size.height - 1)))

    # --- painting -----------------------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Fold anew."""
        del event
        self._forget()
        self._lay_out()

    def notify_style_update(self) -> None:
        """Forget what was painted in other colours."""
        self._forget()
        super().notify_style_update()

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """As high as there is room."""
        return container.height

    def _lay_out(self) -> None:
        layout = self._layout_now = LogLayout(self._rows, self._options, self.size.width - 1, self.size.height)
        if not self._rows:
            self._top = ViewPlace(0)
        elif self.following:
            self._top = layout.find_last()
        else:
            self._top = layout.scroll(self._top, 0)
        self._screen_rows = layout.fill(self._top)
        shown = [(self._rows[place.row], place.part) for place in self._screen_rows]
        if len(shown) != len(self._shown):
            self.refresh()
        else:
            # Over ssh each row counts: what stands where it stood is not sent again.
            for y, (before, now) in enumerate(zip(self._shown, shown, strict=True)):
                if before != now:
                    self.refresh(Region(0, y, self.size.width, 1))
        self._shown = shown

    def _forget(self) -> None:
        """Paint everything anew."""
        self._painted.clear()
        self.refresh()

    def set_bounds(self, begin: float, end: float) -> None:
        """How much of all is above the screen, and above its lower edge."""
        height = max(1, self.size.height)
        first = min(height - 1, int(begin * height))
        thumb = first, max(first, min(height - 1, int(end * height)))
        if thumb != self._thumb:
            self._thumb = thumb
            self.refresh(Region(self.size.width - 1, 0, 1, height))

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        width = self.size.width - 1
        bar = self._paint_bar(y)
        if y >= len(self._screen_rows):
            style = self._style("empty")
            said = self.empty.splitlines() if not self._rows else []
            text = f"  {said[y - 1]}" if 0 < y <= len(said) else ""
            return Strip([*Strip([Segment(text, style)]).adjust_cell_length(width, style), bar], width + 1)
        strip = self._select(self._paint(self._screen_rows[y], width), y)
        return Strip([*strip.apply_offsets(0, y), bar], width + 1)

    def _paint_bar(self, y: int) -> Segment:
        """The place of the screen in the log, as a bar on the right."""
        on = self._thumb[0] <= y <= self._thumb[1]
        return Segment(self._signs[1 if on else 0], self._style("thumb" if on else "bar"))

    def _paint(self, place: ViewPlace, width: int) -> Strip:
        row = self._rows[place.row]
        hit = self._hit is not None and row.is_same(self._hit)
        key = (row, place.part, hit)
        strip = self._painted.get(key)
        if strip is None:
            segments = [*self._paint_gutter(row, place.part), *self._paint_text(row, place, hit)]
            strip = Strip(segments).adjust_cell_length(width, self.rich_style).simplify()
            self._painted[key] = strip
        return strip

    def _paint_gutter(self, row: LogRow, part: int) -> Iterator[Segment]:
        style, options = self._style("gutter"), self._options
        first = part == 0
        if options.times:
            yield Segment(f"{format_time(row.at) if first else '':<{TIME_WIDTH}}", style)
        if options.numbers:
            number = "" if not first or row.number is None else str(row.number)
            yield Segment(f"{number:>{NUMBER_WIDTH - 1}} ", style)
        if options.names:
            name = name_of(row)
            colour = self._style(_NAMES[self._groups.get(name_source(row.key), 0) % len(_NAMES)])
            yield Segment(f"{name if first else '':<{options.names}} ", colour)
            if row.key.stream == "error":
                yield Segment("! ", self._style("error"))
            else:
                yield Segment(f"{self._signs[0]} ", colour)

    def _paint_text(self, row: LogRow, place: ViewPlace, hit: bool) -> Iterator[Segment]:
        if row.line.mark:
            sign = self._signs[2] * 4
            yield Segment(f"{sign} {row.line.mark} {sign}", self._style("mark"))
            return
        parts = show_parts(row.line.data)
        begin, end = self._layout_now.folds(place.row)[place.part]
        if not self._options.wrap:
            begin = min(begin + self._left, end)
        spans = self._find_matches(row)
        over = self._style("hit" if hit else "match")
        base = self.rich_style
        for at, part in _split_parts(parts, begin, end, spans):
            style = base + make_style(part.style)
            inside = any(low <= at < high for low, high in spans)
            yield Segment(part.text, style + over if inside else style)

    def _find_matches(self, row: LogRow) -> list[tuple[int, int]]:
        """Where the pattern is in the line; nowhere once it took too long."""
        if self._pattern is None or self.slow:
            return []
        try:
            with deadline(MATCH_SECONDS):
                return [match.span() for match in self._pattern.finditer(row.line.text) if match.end() > match.start()]
        except TooSlow:
            self.slow = True
            return []

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style("log-view--" + name)

    # --- selection by the mouse ---------------------------------------------------------------------------------------

    def _select(self, strip: Strip, y: int) -> Strip:
        selection = self.text_selection
        span = None if selection is None else selection.get_span(y)
        if span is None:
            return strip
        begin, end = span[0], strip.cell_length if span[1] == -1 else span[1]
        style = self.screen.get_component_rich_style("screen--selection")
        before, inside, after = strip.crop(0, begin), strip.crop(begin, end), strip.crop(end)
        return Strip([*before, *inside.apply_style(style), *after])

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The text that the mouse has selected."""
        width = self.size.width - 1
        texts = [self._paint(place, width).text.rstrip() for place in self._screen_rows]
        return selection.extract("\n".join(texts)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Paint it."""
        self.refresh()


def _split_parts(
    parts: Sequence[StyledPart], begin: int, end: int, spans: Sequence[tuple[int, int]]
) -> Iterator[tuple[int, StyledPart]]:
    """The characters from `begin` to `end`, cut where matches begin and end, each piece with its place."""
    borders = sorted({begin, end, *(place for span in spans for place in span if begin < place < end)})
    for low, high in itertools.pairwise(borders):
        place = low
        for part in cut_parts(parts, low, high):
            yield place, part
            place += len(part.text)


@lru_cache(maxsize=500)
def make_style(sgr: Sgr) -> Style:
    """The style that a log asked for."""
    return Style(
        color=_make_colour(sgr.colour),
        bgcolor=_make_colour(sgr.background),
        bold=sgr.bold or None,
        dim=sgr.dim or None,
        italic=sgr.italic or None,
        underline=sgr.underline or None,
        reverse=sgr.reverse or None,
        strike=sgr.strike or None,
    )


def _make_colour(colour: int | tuple[int, int, int] | None) -> Color | None:
    if colour is None:
        return None
    return Color.from_rgb(*colour) if isinstance(colour, tuple) else Color.from_ansi(colour)
