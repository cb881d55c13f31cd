"""The table of `span sinfo` on a terminal: how large nodes are, and how much of them is in use."""

from __future__ import annotations

from typing import Any

from overspan.bridge.cli.tables.node_table import fit_nodes
from overspan.bridge.cli.tables.sinfo_fields import LETTERS, gather
from overspan.bridge.listings.layout import render

BIG: dict[str, Any] = {
    "name": "n1", "cluster": "lab", "partition": "gpu", "default": True, "state": "mixed", "time_limit": 3600,
    "cpus": 64, "cpus_used": 12.5, "memory": 524288, "memory_used": 1536, "gpus": 8, "gpus_used": 2, "gpu_kind": "h100",
}  # fmt: skip
SMALL = {
    "name": "box", "cluster": "local", "partition": "local", "default": True, "state": "idle", "cpus": 4,
    "cpus_used": 0, "memory": 8192, "memory_used": 0,
}  # fmt: skip


def show(*nodes: dict[str, Any], by_node: bool = False, titled: bool = False) -> list[str]:
    rows = gather(nodes, [LETTERS[letter] for letter in "PlTN"], by_node)
    return render(fit_nodes(rows, 0.0, by_node=by_node, titled=titled), rows, 0.0).splitlines()


def test_nodes_of_one_state_are_summed_up() -> None:
    assert show(BIG, {**BIG, "name": "n2"}) == [
        "PARTITION AVAIL TIMELIMIT NODES STATE CPUS(A/T) MEMORY(A/T) GPUS(A/T) NODELIST",
        "gpu*         up   1:00:00     2   mix    25/128       3G/1T h100:4/16 n[1-2]",
    ]


def test_clusters_are_named_where_there_are_several() -> None:
    assert show(BIG, SMALL) == [
        "CLUSTER PARTITION AVAIL TIMELIMIT NODES STATE CPUS(A/T) MEMORY(A/T) GPUS(A/T) NODELIST",
        "lab     gpu*         up   1:00:00     1   mix   12.5/64   1.5G/512G  h100:2/8 n1",
        "local   local*       up  infinite     1  idle       0/4        0/8G         - box",
    ]
    assert "CLUSTER" not in show(BIG, SMALL, titled=True)[0]
    assert "GPUS" not in show(SMALL)[0]


def test_each_node_has_its_line_and_why_it_is_away() -> None:
    other = {**BIG, "name": "n2", "gpu_kind": "", "state": "drained", "reason": "fan"}
    assert show(other, BIG, by_node=True) == [
        "NODELIST PARTITION STATE CPUS(A/T) MEMORY(A/T) GPUS(A/T) REASON",
        "n1       gpu*        mix   12.5/64   1.5G/512G  h100:2/8 ",
        "n2       gpu*      drain   12.5/64   1.5G/512G       2/8 fan",
    ]
    assert show(SMALL, by_node=True)[1] == "box      local*     idle       0/4        0/8G"


def test_a_partition_without_nodes_of_a_state_has_none_in_use() -> None:
    layout = fit_nodes([], 0.0, by_node=False, titled=False)
    assert render(layout, [], 0.0).split() == [
        *("PARTITION", "AVAIL", "TIMELIMIT", "NODES", "STATE"),
        *("CPUS(A/T)", "MEMORY(A/T)", "NODELIST"),
    ]
