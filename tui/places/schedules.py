"""The schedules: when each is due, and what became of its last run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from textual.binding import BindingType

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.orders import refuse_orders
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source
from overspan.tui.dialogs.order_dialog import GivenOrder, OrderDialog, OrderQuestion
from overspan.tui.keyboard.keys import bind
from overspan.tui.places.history import HistoryPlace
from overspan.tui.places.list_place import ListPlace
from overspan.tui.schedules.lines import (
    FIELDS,
    SORTED,
    ScheduleLine,
    describe,
    find_jobs,
    format_span,
    make_columns,
    make_lines,
)
from overspan.tui.widgets.line_table import LineTable, TableColumn


class SchedulesPlace(ListPlace):
    """All schedules, with orders to pause, resume and delete them, and to make a run now."""

    name_of_place = "schedules"
    MOST_ABOUT = 3
    BINDINGS: ClassVar[list[BindingType]] = [*bind("schedules")]
    FIELDS = FIELDS
    SORTS = SORTED
    DESCENDING = frozenset({"last", "runs"})
    HINT = "words, name:nightly, state:paused, !inverse"

    def __init__(self) -> None:
        super().__init__()
        self._schedules: list[dict[str, Any]] = []

    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        return list(make_columns(width))

    def ask(self) -> None:
        """Ask for all schedules."""
        self.inquire("schedules", lambda source: source.schedules(), self._take)

    def _take(self, schedules: list[dict[str, Any]]) -> None:
        self._schedules = schedules
        known = {int(schedule["id"]) for schedule in schedules}
        self.table.marks -= {mark for mark in self.table.marks if mark not in known}
        self.draw()

    def draw(self) -> None:
        """Show them."""
        self.set_lines(make_lines(self._schedules, self.filter, self.sort, self.reverse))

    def describe_line(self, line: ScheduleLine) -> str:
        """Its times in full, its policies and the latest thing to know."""
        return describe(line)

    def explain_empty(self) -> str:
        """What to do where there is none."""
        return "no schedules; `span cron -e` edits a crontab, and a job file with `cron:` makes one"

    def sum_up(self) -> str:
        """How many there are, and which is due next."""
        lines = make_lines(self._schedules, self.filter._replace(tests=()), "next")
        paused = sum(line.paused for line in lines)
        parts = [f"Schedules: {len(lines)}", *([f"{paused} paused"] if paused else [])]
        if lines and not lines[0].paused and lines[0].facts.get("next_due"):
            parts.append(f"{lines[0].label} is next, in {format_span(lines[0].facts['next_due'] - self.now())}")
        return "  │  ".join(parts)

    async def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Show the jobs of the schedule in the history."""
        event.stop()
        line = self.table.current
        if isinstance(line, ScheduleLine):
            await self.top.action_place("history")
            self.top.query_one(HistoryPlace).set_filter(find_jobs(line))

    # --- orders -------------------------------------------------------------------------------------------------------

    def list_targets(self) -> list[ScheduleLine]:
        """The marked schedules, those that the filter hides too; without marks the one under the cursor."""
        every = make_lines(self._schedules, self.filter._replace(tests=()), self.sort, self.reverse)
        marked = [line for line in every if line.key in self.table.marks]
        line = self.table.current
        return marked or ([line] if isinstance(line, ScheduleLine) else [])

    def action_pause(self) -> None:
        """Make no more runs. Asks where that gives up runs that are owed."""
        targets = self._may_order([line for line in self.list_targets() if not line.paused], "is paused already")
        owed = [f"{line.label}: {line.owed} owed" for line in targets if line.owed]
        if owed:
            self._confirm("Pause, and give up the runs that are owed?", owed, "Pause", lambda: self._pause(targets))
        elif targets:
            self._pause(targets)

    def _pause(self, targets: Sequence[ScheduleLine]) -> None:
        for line in targets:
            self._order(line, lambda source, key: source.pause_schedule(key), "is paused")

    def action_resume(self) -> None:
        """End a pause."""
        for line in self._may_order([line for line in self.list_targets() if line.paused], "is not paused"):
            self._order(line, lambda source, key: source.resume_schedule(key), "goes on")

    def action_run(self) -> None:
        """Make a run now; asks."""
        targets = self._may_order(self.list_targets(), "")
        if targets:
            names = [line.label for line in targets]
            self._confirm("Make a run now?", names, "Run now", lambda: self._run(targets))

    def _run(self, targets: Sequence[ScheduleLine]) -> None:
        for line in targets:
            self._order(line, lambda source, key: source.run_schedule(key), "runs as job")

    def action_delete(self) -> None:
        """Forget schedules; asks."""
        targets = self._may_order(self.list_targets(), "")
        if targets:
            names = [line.label for line in targets]
            self._confirm("Delete? Jobs that were made go on.", names, "Delete", lambda: self._delete(targets))

    def _delete(self, targets: Sequence[ScheduleLine]) -> None:
        for line in targets:
            self._order(line, lambda source, key: source.delete_schedule(key), "is deleted")

    def _may_order(self, targets: list[ScheduleLine], else_say: str) -> list[ScheduleLine]:
        """The targets, if orders may be given."""
        refusal = refuse_orders(self.top.options)
        if refusal:
            self.app.notify(refusal, severity="warning", markup=False)
            return []
        if not targets and else_say and (line := self.table.current) is not None:
            self.app.notify(f"{line.label} {else_say}", markup=False)
        return targets

    def _confirm(self, title: str, names: Sequence[str], verb: str, carry_out: Callable[[], None]) -> None:
        def answered(given: GivenOrder | None) -> None:
            if given is not None:
                carry_out()

        self.app.push_screen(OrderDialog(OrderQuestion(title, names, verb)), answered)

    def _order(self, line: ScheduleLine, give: Callable[[Source, int], object], done: str) -> None:
        def take(answer: object) -> None:
            self.app.notify(f"{line.label} {done}{'' if answer is None else f' {answer}'}", markup=False)
            self.table.drop_marks({line.key})
            self.ask_again()

        def fail(error: OverspanError) -> None:
            text = clean_text(f"{line.label}: {word_error(error.message, error.remedy)}")
            self.app.notify(text, severity="error", markup=False)
            self.ask_again()

        self.top.questions.ask("orders", lambda source: give(source, line.key), take, fail)
