"""Nodes and partitions of all clusters, with what of them is in use."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, ClassVar

from textual.binding import BindingType

from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import OverspanError
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source
from overspan.tui.filter_language import spell_word
from overspan.tui.keyboard.keys import bind
from overspan.tui.nodes.answers import (
    ClusterNodes,
    count_states,
    find_pause,
    note_answer,
    note_clusters,
    note_failure,
    sum_nodes,
)
from overspan.tui.nodes.lines import (
    FIELDS,
    SORTED,
    JobCounts,
    NodeLine,
    NodeLineKey,
    NodeView,
    UseWidths,
    count_jobs,
    describe,
    make_columns,
    make_lines,
    measure_uses,
)
from overspan.tui.places.list_place import ListPlace
from overspan.tui.widgets.line_table import LineTable, TableColumn


class NodesPlace(ListPlace):
    """Nodes below their partitions. Each cluster is asked by itself, as often as its answers are quick."""

    name_of_place = "nodes"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("nodes")]
    FIELDS = FIELDS
    SORTS = SORTED
    DESCENDING = frozenset({"cpus", "memory", "gpus", "jobs"})
    HINT = "words, state:drain, partition:gpu, !inverse"

    def __init__(self) -> None:
        super().__init__()
        self._known: dict[str, ClusterNodes] = {}
        self._next: dict[str, float] = {}
        self._folded: set[NodeLineKey] = set()
        self._uses = UseWidths()
        self._jobs: JobCounts = {}

    def make_columns(self, width: int) -> list[TableColumn[Any]]:
        """The columns, as wide as what they show."""
        return list(make_columns(width, self._uses, self.top.options.ascii))

    # --- asking -------------------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """Ask which clusters there are, and each one that is due."""
        self.inquire("nodes", lambda source: source.clusters(), self._take_clusters)

    def ask_again(self) -> None:
        """Ask every cluster now."""
        self._next.clear()
        super().ask_again()

    def _take_clusters(self, clusters: list[dict[str, Any]]) -> None:
        self._known = note_clusters(self._known, clusters)
        self._jobs = count_jobs(self._list_rows())
        for name, cluster in self._known.items():
            if cluster.asked and time.monotonic() >= self._next.get(name, 0.0):
                self._ask_nodes(name)
        self.draw()

    def _ask_nodes(self, name: str) -> None:
        kind = f"nodes of {name}"
        if kind in self._under_way:
            return
        began = self._under_way[kind] = time.monotonic()

        def ask(source: Source) -> dict[str, Any]:
            return source.nodes([name])

        def take(document: dict[str, Any]) -> None:
            settle(note_answer(self._known, name, document))

        def fail(error: OverspanError) -> None:
            settle(note_failure(self._known, name, word_error(error.message, error.remedy)))

        def settle(known: dict[str, ClusterNodes]) -> None:
            del self._under_way[kind]
            self._known = known
            cluster = known.get(name, ClusterNodes(name))
            self._next[name] = time.monotonic() + find_pause(cluster, time.monotonic() - began)
            self.draw()

        self.top.questions.ask(kind, ask, take, fail)

    # --- showing ------------------------------------------------------------------------------------------------------

    def _list_rows(self) -> Iterator[JobRow]:
        for node in self.top.queue.jobs:
            yield from (child.row for child in node.children) if node.children else (node.row,)

    def draw(self) -> None:
        """Show what is known of all clusters."""
        view = NodeView(self.filter, self.sort, self.reverse, self._folded)
        lines = make_lines(self._known.values(), self._jobs, view)
        uses = measure_uses(lines)
        if uses != self._uses:
            self._uses = uses
            self.table.set_columns(self.make_columns(self.table.size.width))
        self.set_lines(lines)

    def describe_line(self, line: NodeLine) -> str:
        """The state of a node and why it takes no work; of a partition or a cluster what is known."""
        return describe(line, self.now())

    def explain_empty(self) -> str:
        """What to do where no cluster is known."""
        return "no clusters; `span config` says where to write them"

    def sum_up(self) -> str:
        """How much of everything is in use, and how old that is."""
        clusters = [cluster for cluster in self._known.values() if cluster.nodes]
        if not clusters:
            return "Nodes"
        able, total = count_states(clusters)
        nodes = [node for cluster in clusters for node in cluster.nodes]
        uses = (
            f"{sum_nodes(nodes, kind + '_used'):g}/{sum_nodes(nodes, kind):g} {title}"
            for kind, title in (("cpus", "CPUs"), ("gpus", "GPUs"))
            if sum_nodes(nodes, kind)
        )
        oldest = min(cluster.told_at or 0.0 for cluster in clusters)
        # A time of day is painted once an answer, an age each second.
        age = time.strftime("as of %H:%M:%S", time.localtime(oldest))
        return "  │  ".join((f"Nodes: {able} of {total} take work", ", ".join(uses), age))

    # --- keys ---------------------------------------------------------------------------------------------------------

    def on_line_table_opened(self, event: LineTable.Opened) -> None:
        """Fold or unfold a partition, show the jobs of a node, ask a cluster."""
        event.stop()
        line = self.table.current
        if not isinstance(line, NodeLine):
            return
        if line.is_node:
            self._show_jobs(line)
        elif line.folded is not None:
            self._folded ^= {line.key}
            self.draw()
        elif line.cluster.name in self._known:
            self._known[line.cluster.name] = line.cluster._replace(wanted=True, trouble="")
            self._ask_nodes(line.cluster.name)
            self.draw()

    def _show_jobs(self, line: NodeLine) -> None:
        words = (spell_word("node", line.key.node), spell_word("cluster", line.cluster.name))
        self.top.show_place("queue")
        self.top.queue.set_filter(" ".join(words))

    def action_fold(self) -> None:
        """Fold the partition of the line."""
        line = self.table.current
        if isinstance(line, NodeLine) and line.row.nodes:
            head = line.key._replace(node="")
            self._folded.add(head)
            self.draw()
            self.table.move_to(head)

    def action_unfold(self) -> None:
        """Show the nodes of the partition."""
        line = self.table.current
        if isinstance(line, NodeLine) and line.folded:
            self._folded.discard(line.key)
            self.draw()

    def action_fold_all(self) -> None:
        """Fold all partitions, or unfold them all where one is folded."""
        heads = {
            NodeLineKey(cluster.name, str(node.get("partition", "")))
            for cluster in self._known.values()
            for node in cluster.nodes
        }
        self._folded = set() if self._folded else heads
        self.draw()
