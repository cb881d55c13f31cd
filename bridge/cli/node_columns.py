"""What sinfo can show: letters of -o, and how nodes are gathered into lines (sinfo(1))."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from overspan.bridge.cli.layout import Column
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.hostlists import compress

DEFAULT_FORMAT = "%#P %.5a %.10l %.6D %.6t %N"
NODE_FORMAT = "%#N %.6D %.#P %6t"
LONG_FORMAT = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
NODE_LONG_FORMAT = "%#N %.6D %.#P %.11T %.4c %.8z %.6m %.8d %.6w %.8f %20E"
SUMMARY_FORMAT = "%#P %.5a %.10l %.16F %N"

_SHORT_STATES = {
    "allocated": "alloc",
    "completing": "comp",
    "drained": "drain",
    "draining": "drng",
    "future": "futr",
    "mixed": "mix",
    "unknown": "unk",
    "reserved": "resv",
}
_OTHER = frozenset({"down", "drain", "drained", "draining", "fail", "maint", "unknown"})


class NodeRow(NamedTuple):
    """Nodes of one partition that one line shows together."""

    partition: str
    default: bool
    cluster: str
    time_limit: float | None
    state: str
    nodes: tuple[Mapping[str, Any], ...]

    def total(self, key: str) -> float:
        """The sum of a number over the nodes."""
        return sum(float(node.get(key) or 0) for node in self.nodes)

    def each(self, key: str) -> str:
        """A number that is one node's; `+` after the lowest where they differ."""
        values = sorted({int(node.get(key) or 0) for node in self.nodes})
        return "0" if not values else f"{values[0]}{'+' if len(values) > 1 else ''}"


def _partition(row: NodeRow, now: float) -> str:
    return row.partition + ("*" if row.default else "")


def _nodes_by_use(row: NodeRow) -> tuple[int, int, int, int]:
    used = sum(node.get("state") in ("allocated", "mixed", "completing") for node in row.nodes)
    other = sum(str(node.get("state")).rstrip("*") in _OTHER for node in row.nodes)
    return used, len(row.nodes) - used - other, other, len(row.nodes)


def _cpus_by_use(row: NodeRow, now: float) -> str:
    other = sum(float(node.get("cpus") or 0) for node in row.nodes if str(node.get("state")).rstrip("*") in _OTHER)
    used, total = row.total("cpus_used"), row.total("cpus")
    return f"{used:g}/{total - used - other:g}/{other:g}/{total:g}"


def _gres(row: NodeRow, now: float) -> str:
    found = []
    for node in row.nodes:
        if node.get("gpus"):
            kind = f"{node['gpu_kind']}:" if node.get("gpu_kind") else ""
            found.append(f"gpu:{kind}{node['gpus']}")
    return ",".join(dict.fromkeys(found)) or "(null)"


def _short_state(row: NodeRow, now: float) -> str:
    base = row.state.rstrip("*~#!%$@^-")
    return _SHORT_STATES.get(base, base) + row.state[len(base) :]


def _free_memory(row: NodeRow, now: float) -> str:
    return str(int(row.total("memory") - row.total("memory_used"))) if row.nodes else "N/A"


def _reason(row: NodeRow, now: float) -> str:
    return next((str(node["reason"]) for node in row.nodes if node.get("reason")), "none")


def _by_use(row: NodeRow, now: float) -> str:
    return "/".join(map(str, _nodes_by_use(row)))


LETTERS: dict[str, Column] = {
    "a": Column("AVAIL", 0, lambda row, now: "up"),
    "A": Column("NODES(A/I)", 0, lambda row, now: "{}/{}".format(*_nodes_by_use(row))),
    "c": Column("CPUS", 0, lambda row, now: row.each("cpus")),
    "C": Column("CPUS(A/I/O/T)", 0, _cpus_by_use),
    "d": Column("TMP_DISK", 0, lambda row, now: "0"),
    "D": Column("NODES", 0, lambda row, now: str(len(row.nodes))),
    "e": Column("FREE_MEM", 0, _free_memory),
    "E": Column("REASON", 0, _reason),
    "f": Column("AVAIL_FEATURES", 0, lambda row, now: "(null)"),
    "F": Column("NODES(A/I/O/T)", 0, _by_use),
    "g": Column("GROUPS", 0, lambda row, now: "all"),
    "G": Column("GRES", 0, _gres),
    "h": Column("OVERSUBSCRIBE", 0, lambda row, now: "NO"),
    "l": Column("TIMELIMIT", 0, lambda row, now: "infinite" if not row.time_limit else format_elapsed(row.time_limit)),
    "m": Column("MEMORY", 0, lambda row, now: row.each("memory")),
    "n": Column("HOSTNAMES", 0, lambda row, now: compress([node["name"] for node in row.nodes]), cut=False),
    "N": Column("NODELIST", 0, lambda row, now: compress([node["name"] for node in row.nodes]), cut=False),
    "O": Column("CPU_LOAD", 0, lambda row, now: "N/A"),
    "p": Column("PRIO_TIER", 0, lambda row, now: "1"),
    "P": Column("PARTITION", 0, _partition),
    "r": Column("ROOT", 0, lambda row, now: "no"),
    "R": Column("PARTITION", 0, lambda row, now: row.partition),
    "s": Column("JOB_SIZE", 0, lambda row, now: "1-infinite"),
    "t": Column("STATE", 0, _short_state),
    "T": Column("STATE", 0, lambda row, now: row.state),
    "V": Column("CLUSTER", 0, lambda row, now: row.cluster),
    "w": Column("WEIGHT", 0, lambda row, now: "1"),
    "z": Column("S:C:T", 0, lambda row, now: f"1:{row.each('cpus')}:1"),
}

# With one of these in the format, nodes that differ in it are not shown together.
_SPLITTING: dict[str, str] = {"n": "name", "c": "cpus", "m": "memory", "G": "gpus", "E": "reason", "e": "memory_used"}


def gather(nodes: Iterable[Mapping[str, Any]], letters: Iterable[str], by_node: bool) -> list[NodeRow]:
    """Gather nodes into lines: by partition and, where the format shows them, by state and the like.

    `by_node` (-N) gives every node a line of its own.
    """
    shown = set(letters)
    by_state = bool(shown & {"t", "T"})
    splitting = [key for letter, key in _SPLITTING.items() if letter in shown]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for node in nodes:
        key = (
            node.get("cluster", ""),
            node.get("partition", ""),
            node.get("state", "") if by_state else "",
            node.get("name", "") if by_node else "",
            *(node.get(name) for name in splitting),
        )
        groups.setdefault(key, []).append(node)
    rows = []
    for key, members in groups.items():
        first = members[0]
        limit = first.get("time_limit")
        rows.append(NodeRow(str(key[1]), bool(first.get("default")), str(key[0]), limit, str(key[2]), tuple(members)))
    return rows
