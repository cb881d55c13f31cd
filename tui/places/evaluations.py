"""The evaluations of checkpoints: those of all jobs with their scores, and a plot of these over the steps."""

from __future__ import annotations

import time
from collections.abc import Collection, Hashable, Sequence
from typing import Any, ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widget import Widget

from overspan.bridge.client.records import QueueChanges
from overspan.bridge.listings.rows import JobRow
from overspan.tui.actions.evaluating import EvaluationChoice, run_again
from overspan.tui.actions.orders import refuse_orders
from overspan.tui.actions.target import Target, make_target
from overspan.tui.detail.pane import BESIDE_FROM, DetailPane
from overspan.tui.evaluations.answers import (
    KnownWatch,
    WatchKey,
    is_news,
    list_due,
    note_documents,
    note_news,
    note_watches,
    read_documents,
)
from overspan.tui.evaluations.lines import (
    FIELDS,
    SORTED,
    EvaluationKey,
    EvaluationLine,
    EvaluationView,
    count_live,
    describe,
    make_columns,
    make_lines,
    word_note,
)
from overspan.tui.evaluations.plot import make_plot
from overspan.tui.evaluations.plot_pane import NOTHING, PlotPane
from overspan.tui.keyboard.keys import bind
from overspan.tui.places.job_place import JobPlace
from overspan.tui.places.list_place import ListPlace
from overspan.tui.queue.tree import Kind, LineKey
from overspan.tui.widgets.line_table import LineTable, TableColumn

_WATCHES, _RESULTS = "evaluations", "results of evaluations"
NEWS_SECONDS = 0.5
"""The least time between two questions that changes of the queue cause."""
COST_FACTOR = 5.0
"""That time is this many times as long as the last answer took: ten thousand evaluations cost the daemon a second."""
_LEAST_HEIGHT = 16
"""Lines of the place from which there is a plot."""
_PLOT_LINES = (8, 18)
"""The least and the most lines that the plot takes, its border among them."""
_ONE_JOB = "it has no evaluations; `span evals watch` asks for some, Esc shows all jobs'"


class EvaluationsPlace(ListPlace, JobPlace):
    """Watches with their checkpoints below them. What changes is asked for when the queue's event stream tells of it.

    The evaluations of a watch are asked for where its lines, or its plot, are in sight. On a line the keys of jobs are
    about the evaluation's own job; on a watch, about the job that is watched.
    """

    name_of_place = "evaluations"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("evaluations")]
    FIELDS = FIELDS
    SORTS = SORTED
    DESCENDING = frozenset({"step", "ended"})
    HINT = "words, state:failed, evaluation:gsm8k, job:57, !inverse"

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[WatchKey, KnownWatch] = {}
        self._folded: set[WatchKey] = set()
        self._seen: set[WatchKey] = set()
        """The watches of which it was decided how they begin: folded where nothing more comes."""
        self._looked_at = 0
        """The job whose evaluations were asked for by its key."""
        self._news = False
        self._changed: set[int] = set()
        """The jobs that changed since results were asked for."""
        self._asked_at = 0.0
        self._pause = NEWS_SECONDS
        self._newest = 0
        """The highest id of a job so far."""

    def compose_more(self) -> ComposeResult:
        """The plot and the details."""
        yield PlotPane(self.top.options.ascii)
        yield DetailPane()

    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        return list(make_columns(width, self.top.options.ascii))

    def on_mount(self) -> None:
        """Wait to be shown. Textual calls the base's handler, too."""
        self.watch(self.screen, "maximized", self._note_maximized, init=False)

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask for all watches, and then for the evaluations of those in sight."""
        self._news, self._asked_at = False, time.monotonic()
        self.inquire(_WATCHES, lambda source: source.watches(), self._take)

    def _take(self, watches: list[dict[str, Any]]) -> None:
        self._known = note_watches(self._known, watches)
        for number, (key, watch) in enumerate(self._known.items()):
            if key not in self._seen and number and watch.summary.get("closed") and key.job != self._looked_at:
                self._folded.add(key)
        self._seen |= set(self._known)
        self.draw()
        self._ask_results()

    def _ask_results(self) -> None:
        """Ask for the evaluations that are wanted and may have changed."""
        due, asked, begun = list_due(self._known, self._list_wanted()), self._known, time.monotonic()
        if not due:
            self._ask_for_news()
            return

        def take(told: dict[int, list[dict[str, Any]]]) -> None:
            # What the event stream told of meanwhile may have come behind this answer.
            self._known = note_news(note_documents(self._known, asked, told), self._changed)
            self._pause = max(NEWS_SECONDS, (time.monotonic() - begun) * COST_FACTOR)
            self.draw()
            if self._news:
                self._ask_for_news()
            else:
                self._ask_results()

        if not self.is_asking(_RESULTS):
            self._changed.clear()
        self.inquire(_RESULTS, lambda source: read_documents(source, due), take)

    def _list_wanted(self) -> Collection[WatchKey]:
        """The watches that are unfolded or under the cursor; a filter looks for checkpoints in all of them."""
        line = self.table.current
        current = line.key.watch if isinstance(line, EvaluationLine) else next(iter(self._known), None)
        return [key for key in self._known if key not in self._folded or key == current or self.filter.source]

    def hear(self, changes: QueueChanges) -> None:
        """Ask again where a change has to do with evaluations."""
        if is_news(self._known, changes, self._newest):
            self._known = note_news(self._known, changes.changed)
            self._changed |= set(changes.changed)
            self._news = True
            self._ask_for_news()
        self._newest = max(self._newest, *changes.changed, *(row.id for row in changes.rows), 0)

    def _ask_for_news(self) -> None:
        """Ask for what the event stream told of, unless that was just asked."""
        quiet = time.monotonic() >= self._asked_at + self._pause
        if self._news and quiet and not self._under_way and self.top.paused_since is None:
            self.ask_again()

    def _tick(self) -> None:
        super()._tick()
        self._ask_for_news()

    # --- showing ------------------------------------------------------------------------------------------------------

    def draw(self) -> None:
        """Show what is known."""
        view = EvaluationView(self.filter, self.sort, self.reverse, self._folded)
        lines = make_lines(self._known.values(), view)
        if self.table.marks:
            every = EvaluationView(self.filter._replace(tests=()))
            self.table.marks &= {line.key for line in make_lines(self._known.values(), every)}
        self.set_lines(lines)
        if not lines and self.filter.fields == {"job"} and self._told_at is not None and not self._under_way:
            self.table.empty = _ONE_JOB
        self._draw_plot()
        self.describe_current()

    def _draw_plot(self) -> None:
        line = self.table.current
        self.query_one(PlotPane).show(make_plot(line.watch, line.one) if isinstance(line, EvaluationLine) else NOTHING)

    def describe_line(self, line: EvaluationLine) -> str:
        """All that is known of it."""
        return describe(line)

    def explain_empty(self) -> str:
        """What to do where there is none."""
        return "no evaluations; `on_checkpoint` in a job file, or `span evals watch`, makes some"

    def sum_up(self) -> str:
        """How many watches there are, and how many evaluations run and wait."""
        running, waiting = count_live(list(self._known.values()))
        still = sum(not watch.summary.get("closed") for watch in self._known.values())
        parts = [f"Evaluations: {len(self._known)} watch{'es' * (len(self._known) != 1)}, {still} open"]
        parts += [f"{running} at work"] if running else []
        parts += [f"{waiting} waiting"] if waiting else []
        return "  │  ".join(parts) if self._known else "Evaluations"

    def on_resize(self, event: events.Resize) -> None:
        """Give the plot its part of the height. Textual calls the bases' handlers, too."""
        self._share_height()

    def _share_height(self) -> None:
        height, plot = self.size.height, self.query_one(PlotPane)
        least, most = _PLOT_LINES
        plot.styles.height = "1fr" if plot.is_maximized else min(most, max(least, height * 2 // 5))
        below = self.pane.display and self.size.width < BESIDE_FROM
        plot.display = height >= _LEAST_HEIGHT and not below

    def look_at(self, job: int) -> None:
        """Show the evaluations of one job's checkpoints, unfolded; those of its own, where it is an evaluation."""
        self._looked_at = job
        self._folded -= {key for key in self._known if key.job == job}
        self.set_filter(f"job:^{job}$")

    # --- lines --------------------------------------------------------------------------------------------------------

    def find_current(self) -> Target | None:
        """The job of the line under the cursor."""
        line = self.table.current
        return self._make_target(line) if isinstance(line, EvaluationLine) else None

    def list_targets(self) -> Sequence[Target]:
        """The jobs of the marked lines; without marks the one under the cursor."""
        targets = {
            target.key: target for line in self._list_chosen() if (target := self._make_target(line)) is not None
        }
        return list(targets.values())

    def _list_chosen(self) -> list[EvaluationLine]:
        """The marked lines, those that the filter hides too; without marks the one under the cursor."""
        every = make_lines(
            self._known.values(), EvaluationView(self.filter._replace(tests=()), self.sort, self.reverse)
        )
        line = self.table.current
        marked = [each for each in every if each.key in self.table.marks]
        return marked or ([line] if isinstance(line, EvaluationLine) else [])

    def _make_target(self, line: EvaluationLine) -> Target | None:
        """The job of a line: as the queue has it, else as far as it is known here."""
        if not line.job:
            return None
        key = LineKey(line.job, "job")
        node = self.top.queue.jobs.find(key)
        if node is not None:
            return make_target(node)
        kind, name = (Kind.GROUP if line.one is None else Kind.JOB), line.label
        if line.one is None:
            name = str(line.watch.summary.get("job_name") or "")
        row = JobRow(id=line.job, name=name, user=line.user, state=line.state, cluster=line.cluster)
        return Target(line.cluster, str(line.job), name, kind, line.state, line.user, row, key)

    def list_shown(self) -> frozenset[LineKey]:
        """The jobs of the lines in the list."""
        return frozenset(LineKey(line.job, "job") for line in self.table.lines)

    def drop_marks(self, keys: Collection[Hashable]) -> None:
        """What was ordered for these jobs, or these lines, has been done."""
        jobs = {key.job for key in keys if isinstance(key, LineKey)}
        lines = {line.key for line in self._list_chosen() if line.job in jobs or line.key in keys}
        self.table.drop_marks(lines)

    def on_line_table_moved(self, event: LineTable.Moved) -> None:
        """Another line has the cursor. Textual calls the base's handler, too."""
        self._draw_plot()
        self._ask_results()
        self.describe_current()

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Fold or unfold a watch, open the details of an evaluation's job."""
        event.stop()
        line = self.table.current
        if not isinstance(line, EvaluationLine):
            return
        if line.folded is not None:
            self._fold(line.key.watch, not line.folded)
        elif not line.job:
            self._explain_absence(line)
        elif self.pane.display:
            self.pane.focus()
        else:
            self.action_describe()

    def _explain_absence(self, line: EvaluationLine) -> None:
        self.app.notify(f"{line.label} has no job: {word_note(line)}", severity="warning", markup=False)

    def action_logs(self) -> None:
        """Read the log of the line's job."""
        line = self.table.current
        if isinstance(line, EvaluationLine) and not line.job:
            self._explain_absence(line)
        else:
            super().action_logs()

    def action_describe(self) -> None:
        """Open the details of the line's job, or close them."""
        super().action_describe()
        self._share_height()

    def action_detail_close(self) -> None:
        """Leave the full screen, or close the details."""
        super().action_detail_close()
        self._share_height()

    def action_plot_zoom(self) -> None:
        """Give the plot the whole screen, or take it back."""
        plot = self.query_one(PlotPane)
        if plot.is_maximized:
            self.screen.minimize()
        elif plot.display:
            self.screen.maximize(plot, container=False)

    def _note_maximized(self, before: Widget | None, widget: Widget | None) -> None:
        """The plot has the whole screen, or gave it back: Esc is Textual's own key there."""
        plot = self.query_one(PlotPane)
        if plot in (before, widget):
            self._share_height()
            (self.table if widget is None else plot).focus()

    def on_plot_pane_steered(self, event: PlotPane.Steered) -> None:
        """Move the cursor of the list, from the plot."""
        event.stop()
        self.table.action_move(event.by)

    def action_fold(self) -> None:
        """Fold the watch of the line."""
        line = self.table.current
        if isinstance(line, EvaluationLine):
            self._fold(line.key.watch, True)
            self.table.move_to(EvaluationKey(line.key.watch))

    def action_unfold(self) -> None:
        """Show the checkpoints of the watch."""
        line = self.table.current
        if isinstance(line, EvaluationLine) and line.folded:
            self._fold(line.key.watch, False)

    def action_fold_all(self) -> None:
        """Fold all watches, or unfold them all where one is folded."""
        line = self.table.current
        self._folded = set() if self._folded else set(self._known)
        self.draw()
        self._ask_results()
        if isinstance(line, EvaluationLine) and line.one is not None:
            self.table.move_to(EvaluationKey(line.key.watch))

    def _fold(self, key: WatchKey, folded: bool) -> None:
        self._folded = self._folded | {key} if folded else self._folded - {key}
        self.draw()
        self._ask_results()

    def _apply(self, text: str) -> None:
        super()._apply(text)
        self._ask_results()

    def close_open(self) -> bool:
        """Leave the plot's full screen, close the details, then drop the filter."""
        if self.query_one(PlotPane).is_maximized:
            self.action_plot_zoom()
            return True
        if self.pane.display:
            self.action_detail_close()
            return True
        return super().close_open()

    # --- orders -------------------------------------------------------------------------------------------------------

    def action_evaluate(self) -> None:
        """Evaluate the checkpoints of the lines once more; asks."""
        refusal = refuse_orders(self.top.options)
        chosen = [line for line in self._list_chosen() if line.one is not None]
        if refusal:
            self.app.notify(refusal, severity="warning", markup=False)
        elif chosen:
            wishes = {(line.key.watch, line.key.checkpoint): line for line in reversed(chosen)}
            run_again(self.top, [_make_wish(line) for line in reversed(wishes.values())], self._note_run)
        elif self.table.current is not None:
            self.app.notify("choose a checkpoint: an evaluation is run again for one", markup=False)

    def _note_run(self, done: Collection[Hashable]) -> None:
        self.drop_marks(done)
        self.ask_again()


def _make_wish(line: EvaluationLine) -> EvaluationChoice:
    target = f"{line.cluster}:{line.key.watch.job}"
    about = f"{line.watch.summary.get('job_name') or ''} {line.key.watch.name}"
    return EvaluationChoice(
        line.key,
        str(line.key.watch.job),
        line.key.checkpoint,
        line.key.watch.name,
        f"{target} {about} of {line.key.checkpoint}",
        line.state,
    )
