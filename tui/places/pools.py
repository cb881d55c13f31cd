"""The pools: their workers, which jobs these hold by leases, and how long each queue is and was."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import BindingType

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.orders import refuse_orders
from overspan.tui.daemon.error_words import word_error
from overspan.tui.dialogs.order_dialog import GivenOrder, OrderDialog, OrderQuestion
from overspan.tui.filter_language import spell_word
from overspan.tui.keyboard.keys import bind
from overspan.tui.places.list_place import ListPlace
from overspan.tui.pools.lines import (
    FIELDS,
    SORTED,
    PoolLine,
    count_ready,
    describe,
    make_columns,
    make_lines,
    note_lengths,
)
from overspan.tui.widgets.line_table import LineTable, TableColumn


class PoolsPlace(ListPlace):
    """All pools with their workers below them."""

    name_of_place = "pools"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("pools")]
    FIELDS = FIELDS
    SORTS = SORTED
    DESCENDING = frozenset({"jobs"})
    HINT = "words, pool:gpu, state:silent, !inverse"

    def __init__(self) -> None:
        super().__init__()
        self._pools: list[dict[str, Any]] = []
        self._lengths: dict[str, list[int]] = {}

    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        """The columns, with the queues as they have been."""
        return list(make_columns(width, self._lengths, self.top.options.ascii))

    def ask(self) -> None:
        """Ask for all pools."""
        self.inquire("pools", lambda source: source.pools(), self._take)

    def _take(self, pools: list[dict[str, Any]]) -> None:
        self._pools, self._lengths = pools, note_lengths(self._lengths, pools)
        self.table.set_columns(self.make_columns(self.table.size.width))
        self.draw()

    def draw(self) -> None:
        """Show them."""
        self.set_lines(make_lines(self._pools, self.filter, self.sort, self.reverse))

    def describe_line(self, line: PoolLine) -> str:
        """A pool in words; of a worker since when, and what it holds."""
        return describe(line, self.now())

    def explain_empty(self) -> str:
        """What to do where there is none."""
        return "no pools; `span pool apply -p NAME FILE` makes one of a job file with `pool: {workers: 2}`"

    def sum_up(self) -> str:
        """How many there are, and what they have to do."""
        if not self._pools:
            return "Pools"
        ready = sum(map(count_ready, self._pools))
        waiting, running = (sum(int(pool.get(name) or 0) for pool in self._pools) for name in ("waiting", "running"))
        workers = f"{ready} worker{'' if ready == 1 else 's'} ready"
        return "  │  ".join((f"Pools: {len(self._pools)}", workers, f"{running} jobs run, {waiting} wait"))

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Show the jobs of the pool, or of the worker, in the queue."""
        event.stop()
        line = self.table.current
        if isinstance(line, PoolLine):
            words = [spell_word("cluster", line.key.pool)]
            words += [spell_word("node", str(line.worker.get("name", "")))] if line.worker is not None else []
            self.top.show_place("queue")
            self.top.queue.set_filter(" ".join(words))

    def action_drain(self) -> None:
        """Give the worker no more jobs, or all workers of the pool; asks."""
        line = self.table.current
        refusal = refuse_orders(self.top.options)
        if refusal:
            self.app.notify(refusal, severity="warning", markup=False)
        elif isinstance(line, PoolLine):
            what = f"all workers of {line.label}" if line.worker is None else line.label
            question = OrderQuestion("Drain? Jobs go on, others take their places.", [what], "Drain")

            def answered(given: GivenOrder | None) -> None:
                if given is not None:
                    self._drain(line)

            self.app.push_screen(OrderDialog(question), answered)

    def _drain(self, line: PoolLine) -> None:
        workers = [] if line.worker is None else [line.key.worker]

        def take(answer: object) -> None:
            self.app.notify(f"{line.label} drains", markup=False)
            self.ask_again()

        def fail(error: OverspanError) -> None:
            text = clean_text(f"{line.label}: {word_error(error.message, error.remedy)}")
            self.app.notify(text, severity="error", markup=False)
            self.ask_again()

        self.top.questions.ask("orders", lambda source: source.drain_pool(line.key.pool, workers), take, fail)
