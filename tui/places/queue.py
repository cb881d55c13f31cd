"""The queue of all clusters: groups and arrays as trees, live."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.message import Message

from overspan.bridge.client.records import JobFilter, QueueChanges
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.rows import join_extents
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.state_words import CODES
from overspan.tui.actions.target import Target, make_target
from overspan.tui.daemon.error_words import tell_error
from overspan.tui.detail.pane import DetailPane
from overspan.tui.filter_language import suggest_word
from overspan.tui.keyboard.keys import bind
from overspan.tui.places.job_place import JobPlace
from overspan.tui.queue.columns import DEFAULT, RIGHT, TICKING, QueueColumn, make_columns
from overspan.tui.queue.filters import QUEUE_FIELDS, read_filter
from overspan.tui.queue.headline import QueueSummary, explain_emptiness, explain_silence, write_frame
from overspan.tui.queue.order import SortKey, SortOrder, choose_order, move_order, turn_order
from overspan.tui.queue.scope import Owners, Scope, find_colleagues, find_me, next_owners
from overspan.tui.queue.shown import Folding, QueueChoice, count_shown, find_next_end, make_choice, show_queue
from overspan.tui.queue.tree import Line, LineKey, QueueTree
from overspan.tui.queue.widths import MeasuredColumn, fit_columns, measure_columns
from overspan.tui.widgets.field_choosers import ColumnChooser, OrderChooser
from overspan.tui.widgets.filter_box import FilterBox
from overspan.tui.widgets.line_table import Cell, LineTable, TableColumn
from overspan.tui.widgets.text_line import TextLine

MEASURE_AGAIN = 600.0
"""Seconds after which times may have outgrown their columns."""
_HINT = "words or field:value, e.g. state:r user:ana !debug"
_ATTRIBUTES = {name: name for name in ("account", "cluster", "group", "name", "partition", "qos", "user")}
"""The fields of the filter whose values are proposed, by attributes of rows."""


class QueueTable(LineTable[Line]):
    """The lines of the queue; it tells when other lines are marked."""

    DEFAULT_CSS = """
    QueueTable.-lost { text-opacity: 60%; }
    QueueTable.-lost:ansi { text-opacity: 100%; }
    """

    class Marked(Message):
        """Other lines are marked."""

    def action_mark(self) -> None:
        """Mark the line, or take its mark away, and go to the next one."""
        super().action_mark()
        self.post_message(self.Marked())

    def action_mark_range(self) -> None:
        """Mark all from the last mark to the cursor."""
        super().action_mark_range()
        self.post_message(self.Marked())

    def action_mark_all(self) -> None:
        """Mark every line that is shown."""
        super().action_mark_all()
        self.post_message(self.Marked())

    def action_unmark(self) -> None:
        """Take all marks away."""
        super().action_unmark()
        self.post_message(self.Marked())

    def drop_marks(self, keys: Collection[Hashable]) -> None:
        """Take the marks of these lines away."""
        super().drop_marks(keys)
        self.post_message(self.Marked())


class QueuePlace(JobPlace):
    """The queue: the tree, its filter, its order and its columns."""

    name_of_place = "queue"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("queue")]

    def __init__(self) -> None:
        super().__init__(id="place-queue")
        self.jobs = QueueTree()
        self.counts: Counter[str] | None = None
        """How many jobs, tasks and elements are in each state, once that is known."""
        self._choice = QueueChoice(Scope(JobFilter()), DEFAULT)
        self._asked = JobFilter()
        self._folding = Folding()
        self._measured: dict[str, MeasuredColumn] = {}
        self._layout: tuple[tuple[str, int], ...] = ()
        self._stale: frozenset[str] = frozenset()
        self._summary = QueueSummary(0, 0)
        self._next_draw = float("inf")

    def compose(self) -> ComposeResult:
        options = self.top.options
        yield TextLine(id="queue-frame")
        yield QueueTable((), self.now, id="queue")
        yield DetailPane()
        yield FilterBox(_HINT, self._suggest, lambda source: read_filter(source).trouble, options.filter)

    def now(self) -> float:
        """The daemon's time."""
        return self.top.now()

    @property
    def table(self) -> QueueTable:
        return self.query_one("#queue", QueueTable)

    @property
    def scope(self) -> Scope:
        """Whose jobs are shown, and which."""
        return self._choice.scope

    @property
    def filter_source(self) -> str:
        """The filter as it was typed."""
        return self._choice.filter.source

    def on_mount(self) -> None:
        """Begin with what the command line and the configuration choose."""
        options = self.top.options
        self._asked = options.wanted
        self._folding = Folding(options.unfolded)
        self._choice = make_choice(options)
        self.set_interval(1.0, self._tick)

    def on_resize(self, event: events.Resize) -> None:
        """Share the width among the columns anew."""
        self._measured.clear()
        self.call_after_refresh(self._draw)

    def on_line_table_widened(self) -> None:
        """Choose the columns anew."""
        self._draw()

    def show(self) -> None:
        """Take the focus."""
        self.table.focus()

    # --- what the daemon tells ----------------------------------------------------------------------------------------

    def take(self, changes: QueueChanges) -> None:
        """Take an answer of the feed."""
        self.jobs.apply(changes.rows, changes.changed, whole=changes.whole)
        self.counts = Counter()
        self._draw()
        self.describe_current()

    def show_watched(self) -> None:
        """Other jobs are watched: their lines have a sign."""
        self._measured.clear()
        self._draw()

    def redraw(self) -> None:
        """The daemon is lost, or was found."""
        self._draw()
        self.describe_current()

    def _tick(self) -> None:
        # What is painted below another screen has that one painted whole.
        if self.top.paused_since is not None or not self.screen.is_active:
            return
        if self.now() >= self._next_draw:
            self._draw()
        elif self.top.place is self:
            self.table.tick()

    # --- what is shown ------------------------------------------------------------------------------------------------

    def _choose(self, choice: QueueChoice) -> None:
        """Show something else; the daemon is asked where it has not told that yet."""
        self._choice = choice
        wanted = choice.scope.asked._replace(extent=join_extents((choice.extent, self._asked.extent)))
        if wanted != self._asked:
            self._asked = wanted
            self.top.follow(wanted)
        self._draw()

    def _draw(self) -> None:
        table, now = self.table, self.now()
        first = self._choice.order[0] if self._choice.order else SortKey("")
        table.sort_column, table.sort_reverse = first.field, first.falling
        table.set_class(self.top.lost is not None, "-lost")
        shown = show_queue(self.jobs, self._choice, self._folding, self.now)
        known = self.counts is not None
        self.counts = count_shown(self.jobs, self.scope.ended, now) if known else None
        hidden = self._lay_out(shown.lines, now)
        self._summary = shown.summary._replace(hidden_columns=hidden, known=known)
        table.empty = explain_emptiness(self._summary) if known else explain_silence(self.top.lost)
        table.set_lines(shown.lines)
        self._next_draw = min(now + MEASURE_AGAIN, float("inf") if self.scope.ended else find_next_end(shown.lines))
        self._write_frame()
        self.top.refresh_head()

    def _lay_out(self, lines: Sequence[Line], now: float) -> int:
        """Give the columns their widths; tells how many have no room."""
        table = self.table
        if not table.size.width:
            return self._summary.hidden_columns
        stale = frozenset(one.cluster for one in self.top.stale if not one.partial)
        columns = make_columns(self._choice.columns, stale, self.top.options.ascii, self.top.watching.watched)
        self._measured = measure_columns(columns, lines, now, self._choice.order, self._measured)
        fitted = fit_columns(columns, self._measured, table.size.width)
        layout = tuple((column.field, width) for column, width in fitted.widths)
        if (layout, stale) != (self._layout, self._stale):
            self._layout, self._stale = layout, stale
            last = fitted.widths[-1][0].field if fitted.widths else ""
            table.set_columns([_make_column(column, width, column.field == last) for column, width in fitted.widths])
        # Who has chosen columns expects to see them.
        return 0 if self._choice.columns == DEFAULT else fitted.hidden

    def _write_frame(self) -> None:
        """Write the line above the table."""
        ascii_only = self.top.options.ascii
        # A job that is gone can be marked still, but nothing can be done about it.
        marks = {key for key in self.table.marks if isinstance(key, LineKey) and self.jobs.find(key) is not None}
        hidden = len(marks - {line.key for line in self.table.lines}) if marks else 0
        summary = self._summary._replace(marked=len(marks), marked_hidden=hidden)
        self.query_one("#queue-frame", TextLine).show(lambda width: write_frame(summary, width, ascii_only))

    # --- the line under the cursor ------------------------------------------------------------------------------------

    def find_current(self) -> Target | None:
        """The job under the cursor."""
        line = self.table.current
        return None if line is None else make_target(line.node)

    def list_targets(self) -> list[Target]:
        """The marked jobs, those that the filter hides too; without marks the one under the cursor."""
        nodes = [
            node for key in self.table.marks if isinstance(key, LineKey) and (node := self.jobs.find(key)) is not None
        ]
        current = self.find_current()
        return [make_target(node) for node in nodes] or ([current] if current is not None else [])

    def on_line_table_moved(self) -> None:
        """Another line has the cursor, and the one before may be marked now."""
        self.describe_current()
        self._write_frame()

    def on_queue_table_marked(self) -> None:
        """Other lines are marked."""
        self._write_frame()

    def on_line_table_opened(self) -> None:
        """Fold or unfold a head; details of what is none."""
        line = self.table.current
        if line is None:
            return
        if line.folded is not None:
            self._fold(line.key, unfolded=line.folded)
        elif self.pane.display:
            self.pane.focus()
        else:
            self.action_describe()

    def action_fold(self) -> None:
        """Fold the head; of a member: go to its head."""
        line = self.table.current
        if line is None:
            return
        if line.depth:
            self.table.move_to(LineKey(line.key.job, "job"))
        elif line.folded is False:
            self._fold(line.key, unfolded=False)

    def action_unfold(self) -> None:
        """Show what is below the head."""
        line = self.table.current
        if line is not None and line.folded:
            self._fold(line.key, unfolded=True)

    def action_fold_all(self) -> None:
        """Fold everything, or unfold everything where nothing is unfolded."""
        line = self.table.current
        self._folding.turn()
        self._measured.clear()
        self._draw()
        if line is not None and line.depth:
            self.table.move_to(LineKey(line.key.job, "job"))

    def _fold(self, key: LineKey, unfolded: bool) -> None:
        self._folding.set(key, unfolded)
        self._measured.clear()
        self._draw()

    # --- whose jobs ---------------------------------------------------------------------------------------------------

    def action_owner(self) -> None:
        """Show one's own jobs, those of one's groups, or all."""
        owners = next_owners(self.scope.owners, bool(self.scope.wanted.users))
        if owners is Owners.GROUP:
            users = {node.row.user for node in self.jobs}
            self.top.questions.ask(
                "people", lambda source: find_colleagues(users), self._show_colleagues, self._miss_colleagues
            )
        else:
            self._show_owners(owners, (find_me(),) if owners is Owners.MINE else ())

    def _show_colleagues(self, users: Collection[str]) -> None:
        if self.scope.owners is Owners.MINE:
            self._show_owners(Owners.GROUP, users)

    def _miss_colleagues(self, error: OverspanError) -> None:
        self.app.notify(tell_error(error), title="groups", severity="warning", markup=False)
        self._show_owners(Owners.ALL, ())

    def _show_owners(self, owners: Owners, users: Collection[str]) -> None:
        self._choose(self._choice._replace(scope=self.scope._replace(owners=owners, users=users)))

    def action_ended(self) -> None:
        """Show, or hide, jobs that ended."""
        self._choose(self._choice._replace(scope=self.scope._replace(ended=not self.scope.ended)))

    # --- order and columns --------------------------------------------------------------------------------------------

    def action_sort(self) -> None:
        """Choose what to sort by."""
        self.app.push_screen(
            OrderChooser(self._list_shown(), self._choice.order, self.top.options.ascii), self._take_order
        )

    def action_reverse(self) -> None:
        """Turn the order round."""
        self._sort_by(turn_order(self._choice.order))

    def action_sort_beside(self, by: int) -> None:
        """Sort by the column to the right or left."""
        self._sort_by(move_order(self._choice.order, self._list_shown(), by))

    def _list_shown(self) -> Sequence[str]:
        """The fields of the columns that have room."""
        return [field for field, _ in self._layout] or self._choice.columns

    def on_line_table_sorted(self, event: LineTable.Sorted) -> None:
        """Sort by the column whose title was clicked; again, the other way round."""
        self._sort_by(choose_order(self._choice.order, event.column))

    def _take_order(self, order: SortOrder | None) -> None:
        if order is not None:
            self._sort_by(order)

    def _sort_by(self, order: SortOrder) -> None:
        self._choose(self._choice._replace(order=order))

    def action_columns(self) -> None:
        """Choose the columns."""
        self.app.push_screen(ColumnChooser(self._choice.columns, self.top.options.ascii), self._take_columns)

    def _take_columns(self, columns: tuple[str, ...] | None) -> None:
        if columns is not None:
            self._measured.clear()
            self._choose(self._choice._replace(columns=columns))

    # --- the filter ---------------------------------------------------------------------------------------------------

    def action_filter(self) -> None:
        """Type a filter."""
        self.query_one(FilterBox).open()

    def set_filter(self, source: str) -> None:
        """Show what matches this filter."""
        self.query_one(FilterBox).set_source(source)
        self._filter_by(source)

    def on_filter_box_changed(self, event: FilterBox.Changed) -> None:
        """Filter while it is typed."""
        self._filter_by(event.source)

    def on_filter_box_closed(self) -> None:
        """Go back to the lines."""
        self.table.focus()

    def _filter_by(self, source: str) -> None:
        if source != self.filter_source:
            self._choose(self._choice._replace(filter=read_filter(clean_text(source))))

    def close_open(self) -> bool:
        """Close the filter, then the details; False where neither is open."""
        box = self.query_one(FilterBox)
        if self.pane.display and not box.typing:
            self.action_detail_close()
            return True
        if not box.typing and not box.source:
            return False
        box.close(kept=False)
        return True

    def _suggest(self, source: str) -> str | None:
        return suggest_word(source, QUEUE_FIELDS, self._list_known)

    def _list_known(self, field: str) -> set[str]:
        """The values that a filter may name; those with blanks need quotation marks, and are left out."""
        if field == "state":
            return {state.lower() for state in CODES}
        attribute = _ATTRIBUTES.get(field)
        values = {clean_text(str(getattr(node.row, attribute))) for node in self.jobs} if attribute else set()
        return {value for value in values if value and not set(value) & set(" ,'\"")}


def _make_column(column: QueueColumn, width: int, last: bool) -> TableColumn[Line]:
    """The column as the table has it."""
    field = column.field

    def show(line: Line, now: float) -> Cell:
        text = column.show(line, now)
        return Cell(text.text, text.style)

    return TableColumn(field, column.title, width, show, right=field in RIGHT, wide=last, ticks=field in TICKING)
