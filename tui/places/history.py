"""Jobs of any age, newest first; older ones are read when the cursor comes to the end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from overspan.bridge.client.records import JobFilter, Listing
from overspan.tui.actions.target import Target, make_target
from overspan.tui.amounts import count
from overspan.tui.detail.pane import DetailPane
from overspan.tui.filter_language import FilterFields
from overspan.tui.history.columns import SORTED, OlderLine, format_end, make_columns, sort_key
from overspan.tui.history.pages import HistoryPages
from overspan.tui.history.words import read_history_filter
from overspan.tui.keyboard.keys import bind
from overspan.tui.places.job_place import JobPlace
from overspan.tui.places.list_place import ListPlace
from overspan.tui.queue.filters import QUEUE_FIELDS, QueueFilter
from overspan.tui.queue.tree import Kind, Line, LineKey, QueueTree, View
from overspan.tui.widgets.filter_box import FilterBox
from overspan.tui.widgets.line_table import LineTable, TableColumn

_NEWEST, _OLDER = "newest history", "older history"


class HistoryPlace(ListPlace, JobPlace):
    """The history: what was read of it, as a tree."""

    name_of_place = "history"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("history")]
    PERIOD = 10.0
    DESCRIBES = False
    SORTS = SORTED
    DESCENDING = frozenset({"id", "ended", "time_used"})
    HINT = "since:2d user:ana state:f name:^fit$; Enter asks the daemon"

    def __init__(self) -> None:
        super().__init__()
        self._pages = HistoryPages()
        self._tree = QueueTree()
        self._unfolded: set[LineKey] = set()
        self._matching = 0

    def compose_more(self) -> ComposeResult:
        """The details."""
        yield DetailPane()

    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        return list(make_columns(width, lambda family: self._pages.is_partial(family), self.top.options.ascii))

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for the newest page."""
        asked = self._pages.ask_newest()

        def take(listing: Listing) -> None:
            again = self._pages.take_newest(listing)
            self._show_pages()
            if again:
                self.ask_older()

        self._put(_NEWEST, asked, take)

    def ask_older(self) -> None:
        """Ask for the page before the oldest job that is known."""
        if self._pages.complete or self._told_at is None:
            return
        asked, before = self._pages.ask_older(), len(self._tree)

        def take(listing: Listing) -> None:
            again = self._pages.take_older(listing)
            self._show_pages()
            # A page may hold nothing but elements of an array that has its line already.
            if again or len(self._tree) == before:
                self.ask_older()

        self._put(_OLDER, asked, take)
        self.draw()

    def _put(self, kind: str, asked: JobFilter, take: Callable[[Listing], None]) -> None:
        self.inquire(kind, lambda source: source.history(asked), take)

    def _show_pages(self) -> None:
        self._tree.apply(self._pages.rows(), whole=True)
        self.draw()

    def _start_anew(self, wanted: JobFilter) -> None:
        self._pages = HistoryPages(wanted)
        self._tree = QueueTree()
        self.forget_answers()
        self.ask_again()

    # --- showing ------------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Show what was read."""
        view = View(self.filter, sort_key(self.sort, self.now()), self.reverse, self._unfolded)
        lines: list[Line | OlderLine] = [*self._tree.lines(view)]
        self._matching = sum(isinstance(line, Line) and not line.depth for line in lines)
        if self._told_at is not None and not self._pages.complete:
            lines.append(OlderLine(len(lines), self.is_asking(_OLDER)))
        self.set_lines(lines)

    def explain_empty(self) -> str:
        """What to do where there is no history."""
        return "no job has been submitted yet; `span submit` makes one"

    def sum_up(self) -> str:
        """How much was read, and how far back."""
        wanted, now = self._pages.wanted, self.now()
        oldest = min((node.row.submitted_at or now for node in self._tree), default=None)
        back = "that is all of it" if self._pages.complete else f"read back to {format_end(oldest, now, True)}"
        asked = [*wanted.users, *wanted.states, *wanted.names, *wanted.clusters, *wanted.partitions]
        asked += [f"since {format_end(wanted.since, now, True)}"] if wanted.since is not None else []
        asked += [f"until {format_end(wanted.until, now, True)}"] if wanted.until is not None else []
        shown = f"{self._matching} of " if self.filter.source else ""
        parts = [f"History: {shown}{count(len(self._tree), 'job')}", *([" ".join(asked)] if asked else [])]
        return "  │  ".join((*parts, back if self._told_at is not None else ""))

    # --- the filter ---------------------------------------------------------------------------------------------------

    @property
    def filter_fields(self) -> FilterFields[Any]:
        """What a filter of jobs may name."""
        return QUEUE_FIELDS

    def read_filter(self, text: str) -> QueueFilter:
        """Read a filter of jobs, with times."""
        return read_history_filter(text, self.now()).shown

    def on_filter_box_closed(self, event: FilterBox.Closed) -> None:
        """Ask the daemon for what it can choose itself. Textual calls the base's handler, too."""
        self._choose(self._box.source)

    def set_filter(self, text: str) -> None:
        """Filter by a text, as if it had been typed and kept."""
        super().set_filter(text)
        self._choose(self.filter.source)

    def _choose(self, text: str) -> None:
        wanted = read_history_filter(text, self.now()).wanted
        if wanted != self._pages.wanted:
            self._start_anew(wanted)

    def close_open(self) -> bool:
        """Close the details, then drop the filter."""
        if self.pane.display:
            self.action_detail_close()
            return True
        return super().close_open()

    # --- lines --------------------------------------------------------------------------------------------------------

    def find_current(self) -> Target | None:
        """The job under the cursor."""
        line = self.table.current
        return make_target(line.node) if isinstance(line, Line) else None

    def list_targets(self) -> list[Target]:
        """The marked jobs; without marks the one under the cursor."""
        marks = sorted(key for key in self.table.marks if isinstance(key, LineKey))
        nodes = [node for key in marks if (node := self._tree.find(key)) is not None]
        current = self.find_current()
        return [make_target(node) for node in nodes] or ([current] if current is not None else [])

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        """Another line has the cursor; that of what is older reads it. Textual calls the base's handler, too."""
        if isinstance(self.table.current, OlderLine) and len(self.table.lines) > 1:
            self.ask_older()
        self.describe_current()

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Unfold a group or an array, read what is older, else open the details."""
        event.stop()
        line = self.table.current
        if isinstance(line, OlderLine):
            self.ask_older()
        elif isinstance(line, Line) and line.folded is not None:
            self._unfolded ^= {line.key}
            self.draw()
        elif isinstance(line, Line):
            self.action_describe()

    def action_fold(self) -> None:
        """Fold the group or array of the line."""
        line = self.table.current
        if not isinstance(line, Line):
            return
        head = next((key for key in self._unfolded if key.job == line.key.job), None)
        if head is not None:
            self._unfolded.discard(head)
            self.draw()
            self.table.move_to(head)

    def action_unfold(self) -> None:
        """Show what is below the line."""
        line = self.table.current
        if isinstance(line, Line) and line.folded:
            self._unfolded.add(line.key)
            self.draw()

    def action_fold_all(self) -> None:
        """Fold everything, or unfold everything where nothing is unfolded."""
        heads = {node.key for node in self._tree if node.kind in (Kind.GROUP, Kind.ARRAY)}
        self._unfolded = set() if self._unfolded else heads
        self.draw()
