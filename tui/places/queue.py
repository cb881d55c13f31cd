"""The queue of all clusters: groups and arrays as trees, live."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from overspan.bridge.client.records import QueueChanges
from overspan.bridge.listings.fields import FIELDS
from overspan.bridge.listings.rows import JobRow
from overspan.tui.actions.target import Target, make_target
from overspan.tui.detail.pane import DetailPane
from overspan.tui.keys import bind
from overspan.tui.places.job_place import JobPlace
from overspan.tui.queue.columns import DEFAULT, make_columns
from overspan.tui.queue.filters import Filter, read_filter
from overspan.tui.queue.tree import Key, Kind, Line, QueueTree, View
from overspan.tui.widgets.line_table import LineTable

ENDED_SECONDS = 60.0
"""How long a job that has ended stays in the queue."""
_ORDER = {"RUNNING": 1, "COMPLETING": 0, "CONFIGURING": 2, "SUSPENDED": 3, "PENDING": 4}


class QueuePlace(JobPlace):
    """The queue: the tree, its filter and its order."""

    name_of_place = "queue"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("queue")]

    def __init__(self) -> None:
        super().__init__(id="place-queue")
        self.jobs = QueueTree()
        self._filter = Filter("")
        self._owner = ""
        self._ended = False
        self._unfolded: set[Key] = set()
        self._sort = ""
        self._reverse = False
        self._known = False

    def compose(self) -> ComposeResult:
        yield LineTable[Line](make_columns(DEFAULT), self.now, id="queue")
        yield DetailPane()
        yield Input(id="filter", placeholder="filter: words, state:r, user:ana, !inverse", compact=True)

    def now(self) -> float:
        """The daemon's time."""
        return time.time() + self.top.clock_offset

    @property
    def table(self) -> LineTable[Line]:
        """The table."""
        return self.query_one("#queue", LineTable)

    def on_mount(self) -> None:
        """Begin with an empty filter, out of sight."""
        self.query_one("#filter").display = False
        self.table.empty = "asking the daemon..."
        self.set_interval(1.0, self._tick)

    def show(self) -> None:
        """Take the focus."""
        self.table.focus()

    # --- what the daemon tells ----------------------------------------------------------------------------------------

    def take(self, changes: QueueChanges) -> None:
        """Take an answer of the feed."""
        self._known = True
        self.jobs.apply(changes.rows, changes.changed, whole=changes.whole)
        self._draw()

    def _tick(self) -> None:
        if self.top.place is self:
            self.table.tick()

    def _draw(self) -> None:
        table = self.table
        lines = self.jobs.lines(
            View(
                self._filter,
                self._key_of(),
                self._reverse,
                self._unfolded,
                0.0 if self._ended else self.now() - ENDED_SECONDS,
            )
        )
        if self._owner:
            lines = [line for line in lines if line.node.row.user == self._owner]
        table.empty = self._explain_empty()
        table.set_lines(lines)
        self.top.refresh_head()

    def _explain_empty(self) -> str:
        if not self._known:
            return "asking the daemon..."
        if self._filter.source or self._owner:
            return "no jobs match"
        return "no jobs wait or run; `e` shows those that ended, `span submit` adds one"

    def _key_of(self) -> Callable[[JobRow], Any]:
        if not self._sort:
            return lambda row: (_ORDER.get(row.state, 5), -(row.priority or 0), -row.id)
        key, now = FIELDS[self._sort].sort, self.now()
        if key is None:
            text = FIELDS[self._sort].text
            return lambda row: text(row, now)
        return lambda row: key(row, now)

    def find_current(self) -> Target | None:
        """The job under the cursor."""
        line = self.table.current
        return None if line is None else make_target(line.node)

    def list_targets(self) -> list[Target]:
        """The marked jobs, those that the filter hides too; without marks the one under the cursor."""
        nodes = [node for key in self.table.marks if isinstance(key, Key) and (node := self.jobs.find(key)) is not None]
        current = self.find_current()
        return [make_target(node) for node in nodes] or ([current] if current is not None else [])

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        """Another line has the cursor."""
        self.describe_current()

    # --- keys ---------------------------------------------------------------------------------------------------------

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Unfold a head."""
        line = self.table.current
        if line is not None and line.folded is not None:
            self._unfolded ^= {line.key}
            self._draw()

    def action_fold(self) -> None:
        """Fold the head of the line."""
        line = self.table.current
        if line is None:
            return
        head = next((key for key in self._unfolded if key.job == (line.node.row.array_id or line.key.job)), None)
        if head is not None:
            self._unfolded.discard(head)
            self._draw()
            self.table.move_to(head)

    def action_unfold(self) -> None:
        """Show what is below the line."""
        line = self.table.current
        if line is not None and line.folded:
            self._unfolded.add(line.key)
            self._draw()

    def action_fold_all(self) -> None:
        """Fold everything, or unfold everything where nothing is unfolded."""
        heads = {node.key for node in self.jobs if node.kind in (Kind.GROUP, Kind.ARRAY)}
        self._unfolded = set() if self._unfolded else heads
        self._draw()

    def action_owner(self) -> None:
        """Show one's own jobs alone, or all."""
        self._owner = "" if self._owner else pwd.getpwuid(os.getuid()).pw_name
        self._draw()

    def action_ended(self) -> None:
        """Show, or hide, jobs that ended."""
        self._ended = not self._ended
        self._draw()

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = ("", *DEFAULT)
        self._sort_by(names[(names.index(self._sort) + 1) % len(names)])

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._reverse = not self._reverse
        self._sort_by(self._sort)

    def on_line_table_sorted(self, event: LineTable.Sorted) -> None:
        """Sort by the column whose title was clicked; again, the other way round."""
        self._reverse = not self._reverse if event.column == self._sort else False
        self._sort_by(event.column)

    def _sort_by(self, name: str) -> None:
        self._sort = name
        self.table.sort_column, self.table.sort_reverse = name, self._reverse
        self._draw()

    # --- the filter ---------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Type a filter."""
        box = self.query_one("#filter", Input)
        box.display = True
        box.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter while it is typed."""
        self._filter = read_filter(event.value)
        self._draw()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter and go back to the rows."""
        event.input.display = bool(event.value)
        self.table.focus()

    @property
    def filter_source(self) -> str:
        """The filter as it was typed."""
        return self._filter.source

    def set_filter(self, source: str) -> None:
        """Filter as if this had been typed."""
        box = self.query_one("#filter", Input)
        box.value = source
        box.display = bool(source)
        self.table.focus()

    def close_open(self) -> bool:
        """Close the details, then drop the filter."""
        if self.pane.display:
            self.action_describe()
            return True
        if not self.query_one("#filter").display:
            return False
        self.set_filter("")
        return True
