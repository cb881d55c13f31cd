"""A place with one table, a note above it and a filter below, whose questions repeat while it is in sight."""

from __future__ import annotations

import textwrap
import time
from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from textual import events
from textual.app import ComposeResult
from textual.content import Content
from textual.widgets import Static

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.errors import OverspanError
from overspan.tui.daemon.error_words import tell_error, word_error
from overspan.tui.daemon.source import Source
from overspan.tui.filter_language import Filter, FilterFields, fields_of_texts, read_words, suggest_word
from overspan.tui.places.place import TopPlace
from overspan.tui.widgets.filter_box import FilterBox
from overspan.tui.widgets.line_table import LineTable, TableColumn

T = TypeVar("T")
_SLOW = 5.0
"""Seconds without an answer that are worth a word."""


class ListPlace(TopPlace):
    """A table that is asked for again every `PERIOD` seconds while it is in sight.

    What was told last stays when an answer fails, and the note says since when.
    """

    DEFAULT_CSS = """
    ListPlace .note { height: 1; padding: 0 1; color: $text-muted; text-wrap: nowrap; text-overflow: ellipsis; }
    ListPlace .note.-trouble { color: $text-error; }
    ListPlace .about { height: 1; padding: 0 1; background: $surface; color: $text-muted; }
    """
    PERIOD: ClassVar[float] = 5.0
    FIELDS: ClassVar[tuple[str, ...]] = ()
    """What a filter may name."""
    SORTS: ClassVar[tuple[str, ...]] = ()
    """The columns to sort by; the first is the order in which the place begins."""
    DESCENDING: ClassVar[frozenset[str]] = frozenset()
    """The columns of which the largest comes first."""
    DESCRIBES: ClassVar[bool] = True
    """Whether lines below the table tell all of the line under the cursor."""
    MOST_ABOUT: ClassVar[int] = 2
    """How many these are at most: as many as the longest text so far needs, so that the table does not jump."""
    HINT: ClassVar[str] = "words, state:..., !inverse"

    def __init__(self) -> None:
        super().__init__(id=f"place-{self.name_of_place}")
        self.filter: Filter[Any] = Filter()
        self.sort = self.SORTS[0]
        self.reverse = False
        self._told_at: float | None = None
        self._trouble = ""
        self._next_ask = 0.0
        self._under_way: dict[str, float] = {}
        """Questions without an answer yet, and since when."""
        self._generation = 0
        self._note = ("", False)
        self._about = ""
        self._about_lines = 1
        self._about_width = self._table_width = 0

    def compose(self) -> ComposeResult:
        yield Static(classes="note", markup=False)
        yield LineTable[Any](self.make_columns(80), self.now, classes="list")
        if self.DESCRIBES:
            yield Static(classes="about", markup=False)
        yield from self.compose_more()
        yield FilterBox(self.HINT, self._suggest, lambda source: self.read_filter(source).trouble)

    def compose_more(self) -> ComposeResult:
        """What else the place has, between the table and the filter."""
        yield from ()

    @property
    def table(self) -> LineTable[Any]:
        return self.query_one(".list", LineTable)

    def now(self) -> float:
        """The daemon's time."""
        return time.time() + self.top.clock_offset

    @property
    def in_sight(self) -> bool:
        """Whether the place is what the user looks at, and no screen lies over it."""
        return self.top.place is self and self.app.screen is self.screen

    # --- what a place of this kind has --------------------------------------------------------------------------------

    @abstractmethod
    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        """The columns for a table of so many cells."""

    @abstractmethod
    def ask(self) -> None:
        """Ask the daemon for what is shown."""

    @abstractmethod
    def draw(self) -> None:
        """Show what is known."""

    @abstractmethod
    def sum_up(self) -> str:
        """What is known, in a line."""

    def describe_line(self, line: Any) -> str:
        """All that is to be said of the line under the cursor, where its columns may cut it."""
        return ""

    def explain_empty(self) -> str:
        """What to do where there is nothing to show."""
        return ""

    # --- asking -------------------------------------------------------------------------------------------------------

    def on_mount(self) -> None:
        """Wait to be shown."""
        self.table.empty = "asking the daemon..."
        self.set_interval(1.0, self._tick)

    def show(self) -> None:
        """Take the focus, and ask."""
        self.table.focus()
        self.ask_again()

    def ask_again(self) -> None:
        """Ask now, also while the display stands still."""
        self._next_ask = 0.0
        self._look()

    def _tick(self) -> None:
        if self.top.paused_since is None:
            self._look()

    def _look(self) -> None:
        """Ask, where that is due, and show what the time alone changes."""
        if not self.in_sight:
            return
        if time.monotonic() >= self._next_ask:
            self._next_ask = time.monotonic() + self.PERIOD
            self.ask()
        self.table.tick()
        self.refresh_note()
        self.refresh_about()

    def inquire(self, kind: str, ask: Callable[[Source], T], take: Callable[[T], None]) -> None:
        """Ask in the background, unless the same question is still under way: an answer may outlast a period."""
        if kind in self._under_way:
            return
        self._under_way[kind] = time.monotonic()
        generation = self._generation

        def taken(answer: T) -> None:
            if generation == self._generation:
                del self._under_way[kind]
                self.note_answer()
                take(answer)

        def failed(error: OverspanError) -> None:
            if generation == self._generation:
                del self._under_way[kind]
                self.note_failure(error)
                self.draw()

        self.top.questions.ask(kind, ask, taken, failed)

    def is_asking(self, kind: str) -> bool:
        """Whether a question is under way."""
        return kind in self._under_way

    def forget_answers(self) -> None:
        """What was told, and what is still being asked, is not wanted any more."""
        self._generation += 1
        self._under_way.clear()
        self._told_at, self._trouble = None, ""
        self.table.empty = "asking the daemon..."

    def note_answer(self) -> None:
        """What is shown is as old as this answer."""
        self._told_at, self._trouble = self.now(), ""

    def note_failure(self, error: OverspanError) -> None:
        """Say why what is shown is old; it stays."""
        self._trouble = word_error(error.message, error.remedy)
        if self._told_at is None:
            self.table.empty = f"{tell_error(error)}; `r` asks again"

    def set_lines(self, lines: list[Any]) -> None:
        """Show lines; without any, say why."""
        table = self.table
        if self._told_at is not None:
            table.empty = "nothing matches the filter; Esc drops it" if self.filter.source else self.explain_empty()
        table.sort_column = self.sort
        table.sort_reverse = self.reverse != (self.sort in self.DESCENDING)
        table.set_lines(lines)
        self.refresh_note()
        self.refresh_about()

    def refresh_note(self) -> None:
        """Write the note again, where it is another one."""
        parts = [self.sum_up()]
        if self._trouble and self._told_at is None:
            parts = [f"no answer: {self._trouble}"]
        elif self._trouble and self._told_at is not None:
            parts.insert(0, f"{format_elapsed(max(0.0, self.now() - self._told_at))} old: {self._trouble}")
        waited = max((time.monotonic() - since for since in self._under_way.values()), default=0.0)
        if waited >= _SLOW:
            parts.insert(0, f"no answer yet after {format_elapsed(waited)}")
        if self.filter.source and not self._box.typing:
            parts.append(f"/{self.filter.source}")
        note = (clean_text("  │  ".join(filter(None, parts))), bool(self._trouble))
        if note != self._note:
            self._note = note
            widget = self.query_one(".note", Static)
            widget.set_class(note[1], "-trouble")
            widget.update(Content(note[0]))

    def refresh_about(self) -> None:
        """Write below the table what its line does not show in full."""
        line = self.table.current
        text = clean_text(self.describe_line(line)) if line is not None else ""
        if self.DESCRIBES and text != self._about:
            self._about = text
            about = self.query_one(".about", Static)
            needed = len(textwrap.wrap(text, max(10, self.size.width - 2)))
            self._about_lines = min(self.MOST_ABOUT, max(self._about_lines, needed))
            about.styles.height = self._about_lines
            about.update(Content(text))

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        """Another line has the cursor."""
        event.stop()
        self.refresh_about()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """Sort by the next column."""
        self._sort_by(self.SORTS[(self.SORTS.index(self.sort) + 1) % len(self.SORTS)], False)

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._sort_by(self.sort, not self.reverse)

    def on_line_table_sorted(self, event: LineTable.Sorted) -> None:
        """Sort by the column whose title was clicked; again, the other way round."""
        event.stop()
        if event.column in self.SORTS:
            self._sort_by(event.column, not self.reverse if event.column == self.sort else False)

    def _sort_by(self, name: str, reverse: bool) -> None:
        self.sort, self.reverse = name, reverse
        self.draw()

    def on_resize(self, event: events.Resize) -> None:
        """On another terminal the line below the table needs other room."""
        if event.size.width and event.size.width != self._about_width:
            self._about_width = event.size.width
            self._about, self._about_lines = "", 1
            self.refresh_about()

    def on_line_table_widened(self, event: LineTable.Widened) -> None:
        """Choose the columns for the width."""
        event.stop()
        width = self.table.size.width
        if width and width != self._table_width:
            self._table_width = width
            self.table.set_columns(self.make_columns(width))

    # --- the filter ---------------------------------------------------------------------------------------------------

    @property
    def _box(self) -> FilterBox:
        return self.query_one(FilterBox)

    @property
    def filter_fields(self) -> FilterFields[Any]:
        """What a filter may name."""
        return fields_of_texts(self.FIELDS)

    def read_filter(self, text: str) -> Filter[Any]:
        """Read a filter of what the place lists."""
        return read_words(text, self.filter_fields)

    def _suggest(self, source: str) -> str | None:
        return suggest_word(source, self.filter_fields)

    def action_filter(self) -> None:
        """Type a filter."""
        self._box.open()
        self.refresh_note()

    def set_filter(self, text: str) -> None:
        """Filter by a text, as if it had been typed and kept."""
        self._box.set_source(text)
        self._apply(self._box.source)

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Filter while it is typed."""
        event.stop()
        if event.source != self.filter.source:
            self._apply(event.source)

    def on_filter_box_closed(self, event: FilterBox.Closed) -> None:
        """Go back to the lines."""
        event.stop()
        self.table.focus()
        self.refresh_note()

    def _apply(self, text: str) -> None:
        self.filter = self.read_filter(text)
        self.draw()

    def close_open(self) -> bool:
        """Drop the filter; False where there was none."""
        if not self._box.typing and not self._box.source:
            return False
        self._box.close(kept=False)
        return True
