"""The table of `span sinfo` on a terminal: of each partition and state its nodes, and how much of them is in use."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.bridge.cli.tables.sinfo_fields import LETTERS, NodeRow
from overspan.bridge.listings.layout import Column, Layout, LayoutField
from overspan.bridge.model.sizes import shorten_memory

_LEFT = frozenset({"CLUSTER", "PARTITION", "NODELIST", "REASON"})


def _cpus_in_use(row: NodeRow, now: float) -> str:
    return f"{row.total('cpus_used'):g}/{row.total('cpus'):g}"


def _memory_in_use(row: NodeRow, now: float) -> str:
    return f"{shorten_memory(row.total('memory_used'))}/{shorten_memory(row.total('memory'))}"


def _gpus_in_use(row: NodeRow, now: float) -> str:
    if not row.total("gpus"):
        return "-"
    kinds = {str(node.get("gpu_kind") or "") for node in row.nodes if node.get("gpus")}
    kind = f"{kinds.pop()}:" if len(kinds) == 1 and any(kinds) else ""
    return f"{kind}{row.total('gpus_used'):g}/{row.total('gpus'):g}"


def _cluster(row: NodeRow, now: float) -> str:
    return row.cluster


def _reason(row: NodeRow, now: float) -> str:
    return next((str(node["reason"]) for node in row.nodes if node.get("reason")), "")


CLUSTER = Column("CLUSTER", 0, _cluster)
CPUS = Column("CPUS(A/T)", 0, _cpus_in_use)
MEMORY = Column("MEMORY(A/T)", 0, _memory_in_use)
GPUS = Column("GPUS(A/T)", 0, _gpus_in_use)
REASON = Column("REASON", 0, _reason)


def fit_nodes(rows: Sequence[NodeRow], now: float, *, by_node: bool, titled: bool) -> Layout:
    """The layout of these rows, each column as wide as its texts.

    `by_node` (-N) is for lines of one node each, `titled` for clusters that have their names above their tables.
    Sums are of the nodes of a line: allocated of all. Columns of clusters, GPUs and reasons are there where they tell
    something.
    """
    several = not titled and len({row.cluster for row in rows}) > 1
    gpus = any(row.total("gpus") for row in rows)
    reasons = by_node and any(_reason(row, now) for row in rows)
    columns = [
        *([CLUSTER] if several else ()),
        *([LETTERS["N"]] if by_node else ()),
        LETTERS["P"],
        *(() if by_node else (LETTERS["a"], LETTERS["l"], LETTERS["D"])),
        LETTERS["t"],
        CPUS,
        MEMORY,
        *([GPUS] if gpus else ()),
        *(() if by_node else (LETTERS["N"],)),
        *([REASON] if reasons else ()),
    ]
    widths = [max([len(column.header), *(len(column.text(row, now)) for row in rows)]) for column in columns]
    *first, last = [
        LayoutField(column, width, column.header not in _LEFT, " ") for column, width in zip(columns, widths)
    ]
    # No blanks behind the last column.
    return Layout("", (*first, last._replace(width=last.width if last.right else 0, suffix="")))
