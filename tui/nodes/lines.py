"""Lines of nodes below their partitions, and their columns: words and sums are those of `span sinfo`. Pure."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from overspan.bridge.cli.tables.sinfo_fields import LETTERS, NodeRow, gather
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.sizes import shorten_memory
from overspan.bridge.model.slurm.hostlists import expand
from overspan.tui.filter_language import Filter, Texts
from overspan.tui.nodes.answers import ClusterNodes, is_able, sum_nodes
from overspan.tui.widgets.bars import draw_bar, style_use
from overspan.tui.widgets.line_table import Cell, TableColumn

FIELDS = ("cluster", "node", "partition", "reason", "state")
"""What a filter may name."""
SORTED = ("name", "state", "cpus", "memory", "gpus", "jobs", "reason")
"""What the nodes of a partition are sorted by."""
_AT_WORK = frozenset(("RUNNING", "COMPLETING", "SUSPENDED"))
_WIDE_TABLE = 110
"""The width from which bars are long."""
_STYLES = {"idle": "good", "mixed": "busy", "allocated": "busy", "completing": "busy", "down": "bad", "fail": "bad"}

JobCounts = Mapping[tuple[str, str], int]
"""How many jobs are at work, by cluster and node."""


class NodeLineKey(NamedTuple):
    """Which line it is: a cluster without nodes, a partition, or a node in it."""

    cluster: str
    partition: str = ""
    node: str = ""


class NodeLine(NamedTuple):
    """A partition (`folded` is not None), a node below it, or a cluster of which no node is known."""

    key: NodeLineKey
    row: NodeRow
    cluster: ClusterNodes
    jobs: int = 0
    folded: bool | None = None
    last: bool = False
    """Whether it is the last one below its partition."""

    @property
    def is_node(self) -> bool:
        """Whether it is one node."""
        return bool(self.key.node)

    def share(self, kind: str) -> tuple[float, float]:
        """How much of `cpus`, `memory` or `gpus` is in use, and how much there is."""
        return sum_nodes(self.row.nodes, f"{kind}_used"), sum_nodes(self.row.nodes, kind)


class NodeView(NamedTuple):
    """What is chosen of the nodes, and in which order."""

    filter: Filter[Texts]
    sort: str = "name"
    reverse: bool = False
    folded: Collection[NodeLineKey] = frozenset()


def make_lines(clusters: Iterable[ClusterNodes], jobs: JobCounts, view: NodeView) -> list[NodeLine]:
    """The lines of all clusters: their partitions as they tell them, nodes in the order of the view."""
    lines: list[NodeLine] = []
    for cluster in clusters:
        if cluster.nodes:
            lines += _list_partitions(cluster, jobs, view)
        elif view.filter.matches({"cluster": cluster.name, "reason": cluster.trouble}):
            lines.append(NodeLine(NodeLineKey(cluster.name), NodeRow("", False, cluster.name, None, "", ()), cluster))
    return lines


def _list_partitions(cluster: ClusterNodes, jobs: JobCounts, view: NodeView) -> list[NodeLine]:
    by_partition: dict[str, list[NodeLine]] = {}
    for row in gather(cluster.nodes, (LETTERS["P"], LETTERS["T"]), by_node=True):
        name = str(row.nodes[0].get("name", ""))
        line = NodeLine(NodeLineKey(cluster.name, row.partition, name), row, cluster, jobs.get((cluster.name, name), 0))
        if view.filter.matches(list_texts(line)):
            by_partition.setdefault(row.partition, []).append(line)
    told = dict.fromkeys(str(node.get("partition", "")) for node in cluster.nodes)
    lines: list[NodeLine] = []
    for partition in (name for name in told if name in by_partition):
        members = by_partition[partition]
        members.sort(key=_sort_key(view.sort), reverse=view.reverse)
        key = NodeLineKey(cluster.name, partition)
        folded = key in view.folded
        lines.append(_make_head(key, cluster, members, folded))
        if not folded:
            lines += [*members[:-1], members[-1]._replace(last=True)]
    return lines


def _make_head(key: NodeLineKey, cluster: ClusterNodes, members: Sequence[NodeLine], folded: bool) -> NodeLine:
    """The line of a partition: its nodes that are shown, together."""
    first = members[0].row.nodes[0]
    nodes = tuple(member.row.nodes[0] for member in members)
    row = NodeRow(key.partition, bool(first.get("default")), cluster.name, first.get("time_limit"), "", nodes)
    return NodeLine(key, row, cluster, sum(member.jobs for member in members), folded)


def list_texts(line: NodeLine) -> dict[str, str]:
    """What a filter is asked about a node; its state in sinfo's long word and in its short one."""
    return {
        "cluster": line.cluster.name,
        "node": line.key.node,
        "partition": line.row.partition,
        "reason": find_reason(line),
        "state": f"{line.row.state} {_show_state(line)}",
    }


def _sort_key(name: str) -> Callable[[NodeLine], Any]:
    """How the nodes of a partition are ordered; `gather` has put them by name."""
    if name == "state":
        return lambda line: (is_able(line.row.state), line.row.state)
    if name in ("cpus", "memory", "gpus"):
        return lambda line: -_find_share(*line.share(name))
    if name == "jobs":
        return lambda line: -line.jobs
    if name == "reason":
        return lambda line: (not find_reason(line), find_reason(line))
    return lambda line: 0


def _find_share(used: float, total: float) -> float:
    return used / total if total > 0 else -1.0


def count_jobs(rows: Iterable[JobRow]) -> Counter[tuple[str, str]]:
    """How many jobs are at work on each node; a job with several tasks there counts once."""
    found: set[tuple[str, str, int]] = set()
    for row in rows:
        if row.state in _AT_WORK and row.node_list:
            found |= {(row.cluster, name, row.id) for name in spell_nodes(row.node_list)}
    return Counter((cluster, name) for cluster, name, _ in found)


@functools.lru_cache(4096)
def spell_nodes(text: str) -> tuple[str, ...]:
    """The names of a host list; the text itself where it is none."""
    try:
        return tuple(expand(text))
    except ValueError:
        return (text,)


# --- columns ----------------------------------------------------------------------------------------------------------


class UseWidths(NamedTuple):
    """The cells that the longest amounts take; 0 where there is nothing of a kind."""

    cpus: int = 0
    memory: int = 0
    gpus: int = 0


def measure_uses(lines: Iterable[NodeLine]) -> UseWidths:
    """How long the amounts of these lines are."""
    found = dict.fromkeys(UseWidths._fields, 0)
    for line in lines:
        for kind in found:
            used, total = line.share(kind)
            if total > 0:
                found[kind] = max(found[kind], len(_write_use(kind, used, total)))
    return UseWidths(**found)


def make_columns(width: int, uses: UseWidths, ascii_only: bool = False) -> list[TableColumn[NodeLine]]:
    """The columns for a table of so many cells; what there is nothing of has none."""
    bar = 10 if width >= _WIDE_TABLE else 4
    columns: list[TableColumn[NodeLine]] = [
        TableColumn("name", "PARTITION, NODE", 22 if width >= _WIDE_TABLE else 17, _show_name(ascii_only)),
        TableColumn("state", "STATE", 6, lambda line, now: Cell(clean_text(_show_state(line)), style_of(line))),
    ]
    for kind, size in uses._asdict().items():
        if size:
            columns.append(TableColumn(kind, kind.upper(), bar + 1 + size, _show_use(kind, bar, ascii_only)))
    columns.append(TableColumn("jobs", "JOBS", 4, _show_jobs, right=True))
    columns.append(TableColumn("reason", "REASON", 4, _show_reason, wide=True, ticks=True))
    return columns


def _show_name(ascii_only: bool) -> Callable[[NodeLine, float], Cell]:
    folded, unfolded, inner, last = ("+ ", "- ", " |- ", " `- ") if ascii_only else ("▸ ", "▾ ", " ├ ", " └ ")

    def show(line: NodeLine, now: float) -> Cell:
        if line.is_node:
            return Cell((last if line.last else inner) + clean_text(line.key.node), _fade(line, "accent"))
        mark = "  " if line.folded is None else folded if line.folded else unfolded
        name = f"{line.cluster.name}:{LETTERS['P'].text(line.row, now)}" if line.row.nodes else line.cluster.name
        return Cell(mark + clean_text(name), _fade(line, "text"))

    return show


def _show_state(line: NodeLine) -> str:
    """sinfo's short word; of a partition or a cluster, how much is known of it."""
    if line.is_node:
        return LETTERS["t"].text(line.row, 0)
    if line.cluster.old:
        return "old" if line.row.nodes else "silent"
    return "up" if line.row.nodes else "idle"


def style_of(line: NodeLine) -> str:
    """The style of a state: a component class without `line-table--`."""
    if line.cluster.old:
        return "dim" if line.is_node else "bad"
    if not line.is_node:
        return "dim"
    state = line.row.state
    if state.endswith("*"):
        return "bad"
    return _STYLES.get(state.rstrip("~#!%$@^-"), "waiting")


def _fade(line: NodeLine, style: str) -> str:
    """What a silent cluster told is dimmed."""
    return "dim" if line.cluster.old else style


def _show_jobs(line: NodeLine, now: float) -> Cell:
    return Cell(str(line.jobs or "-") if line.row.nodes else "", _fade(line, "text"))


def _show_use(kind: str, width: int, ascii_only: bool) -> Callable[[NodeLine, float], Cell]:
    def show(line: NodeLine, now: float) -> Cell:
        used, total = line.share(kind)
        if total <= 0:
            return Cell("-" if line.row.nodes else "", "dim")
        bar = draw_bar(used, total, width, ascii_only)
        return Cell(f"{bar} {_write_use(kind, used, total)}", _fade(line, style_use(used, total)))

    return show


def _write_use(kind: str, used: float, total: float) -> str:
    if kind == "memory":
        return f"{shorten_memory(used)}/{shorten_memory(total)}"
    return f"{used:.6g}/{total:.6g}"


def _show_reason(line: NodeLine, now: float) -> Cell:
    if line.is_node:
        return Cell(clean_text(find_reason(line)), _fade(line, "waiting"))
    return Cell(clean_text(_explain(line, now)), "bad" if line.cluster.old else "dim")


def _explain(line: NodeLine, now: float) -> str:
    """Of a partition its nodes in words; of a cluster that is silent, why, and how old its nodes are."""
    cluster = line.cluster
    if cluster.old:
        age = f"{format_elapsed(max(0.0, now - cluster.told_at))} old: " if cluster.told_at else ""
        return age + " ".join(cluster.trouble.split())
    return _sum_up(line, now) if line.row.nodes else _explain_absence(cluster)


def describe(line: NodeLine, now: float) -> str:
    """What a line of the table may have no room for."""
    if not line.is_node:
        name = f"{line.cluster.name}:{line.row.partition}" if line.row.nodes else line.cluster.name
        return f"{name}: {_explain(line, now)}"
    node = line.row.nodes[0]
    kind = f" {node['gpu_kind']}" if node.get("gpu_kind") else ""
    uses = [f"{line.share('cpus')[0]:g} of {line.share('cpus')[1]:g} CPUs"]
    uses += [f"{line.share('gpus')[0]:g} of {line.share('gpus')[1]:g}{kind} GPUs"] if line.share("gpus")[1] else []
    jobs = f"{line.jobs or 'no'} job{'' if line.jobs == 1 else 's'} of this queue"
    reason = f"; {find_reason(line)}" if find_reason(line) else ""
    return f"{line.cluster.name}:{line.key.node} is {line.row.state}: {', '.join(uses)}, {jobs}{reason}"


def _explain_absence(cluster: ClusterNodes) -> str:
    if not cluster.asked:
        return "nothing was sent there yet; Enter asks it for its nodes"
    return "no nodes" if cluster.told_at else "asking..."


def _sum_up(line: NodeLine, now: float) -> str:
    in_use, idle, other, total = LETTERS["F"].text(line.row, now).split("/")
    parts = [f"{total} node{'' if total == '1' else 's'}", f"{in_use} in use", f"{idle} idle"]
    parts += [f"{other} out"] if other != "0" else []
    limit = LETTERS["l"].text(line.row, now)
    return ", ".join(parts) + ("" if limit == "infinite" else f"; limit {limit}")


def find_reason(line: NodeLine) -> str:
    """Why a node takes no work, in its cluster's words."""
    return str(line.row.nodes[0].get("reason") or "") if line.is_node and line.row.nodes else ""
