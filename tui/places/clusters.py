"""The clusters: whether each answers and how quickly, what is wrong there, and what a check finds."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.binding import BindingType

from overspan.tui.amounts import count
from overspan.tui.clusters.check import CheckScreen
from overspan.tui.clusters.lines import FIELDS, SORTED, ClusterLine, explain, has_trouble, make_columns, make_lines
from overspan.tui.filter_language import spell_word
from overspan.tui.keyboard.keys import bind
from overspan.tui.places.list_place import ListPlace
from overspan.tui.widgets.line_table import LineTable, TableColumn


class ClustersPlace(ListPlace):
    """All clusters; the daemon answers from memory, so that looking costs no cluster anything."""

    name_of_place = "clusters"
    MOST_ABOUT = 3
    BINDINGS: ClassVar[list[BindingType]] = [*bind("clusters")]
    FIELDS = FIELDS
    SORTS = SORTED
    DESCENDING = frozenset({"jobs", "took"})
    HINT = "words, state:stale, kind:slurm, !inverse"

    def __init__(self) -> None:
        super().__init__()
        self._clusters: list[dict[str, Any]] = []

    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        return list(make_columns())

    def ask(self) -> None:
        """Ask how the clusters are."""
        self.inquire("clusters", lambda source: source.clusters(), self._take)

    def _take(self, clusters: list[dict[str, Any]]) -> None:
        self._clusters = clusters
        self.draw()

    def draw(self) -> None:
        """Show them."""
        self.set_lines(make_lines(self._clusters, self.filter, self.sort, self.reverse))

    def describe_line(self, line: ClusterLine) -> str:
        """Its trouble."""
        return f"{line.key}: {explain(line) or 'answers'}; Enter checks what works there"

    def explain_empty(self) -> str:
        """What to do where there is none."""
        return "no clusters; `span config` says where to write them"

    def sum_up(self) -> str:
        """How many there are, and how many are out of reach."""
        lines = [ClusterLine(str(cluster.get("name", "")), cluster) for cluster in self._clusters]
        silent = [line.key for line in lines if has_trouble(line)]
        jobs = sum(line.jobs for line in lines)
        parts = [f"Clusters: {len(lines)}", count(jobs, "job")]
        return "  │  ".join([*parts, *([f"in trouble: {', '.join(silent)}"] if silent else [])])

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Check the cluster of the line."""
        event.stop()
        line = self.table.current
        if isinstance(line, ClusterLine):
            self.app.push_screen(CheckScreen(line.key))

    def action_jobs(self) -> None:
        """Show the cluster's jobs in the queue."""
        line = self.table.current
        if isinstance(line, ClusterLine):
            self.top.show_place("queue")
            self.top.queue.set_filter(spell_word("cluster", line.key))
