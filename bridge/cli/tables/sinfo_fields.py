"""Fields of sinfo: the letters of -o, and which nodes share a line (sinfo(1))."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from overspan.bridge.listings.layout import Column
from overspan.bridge.model.durations import format_elapsed
from overspan.bridge.model.slurm.hostlists import compress

DEFAULT_FORMAT = "%#P %.5a %.10l %.6D %.6t %N"
NODE_FORMAT = "%#N %.6D %.#P %6t"
LONG_FORMAT = "%#P %.5a %.10l %.10s %.4r %.8h %.10g %.6D %.11T %N"
NODE_LONG_FORMAT = "%#N %.6D %.#P %.11T %4c %.8z %.6m %.8d %.6w %.8f %20E"
SUMMARY_FORMAT = "%#P %.5a %.10l %.16F %N"
REASON_FORMAT = "%20E %9u %19H %N"
REASON_LONG_FORMAT = "%20E %12U %19H %6t %N"

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
        values = sorted({int(float(node.get(key) or 0)) for node in self.nodes})
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
    return (_SHORT_STATES.get(base, base) + row.state[len(base) :]) if row.nodes else "n/a"


def _long_state(row: NodeRow, now: float) -> str:
    return row.state if row.nodes else "n/a"


def _names(row: NodeRow, now: float) -> str:
    return compress(sorted((str(node["name"]) for node in row.nodes), key=_name_key))


def _name_key(name: str) -> tuple[str, int, str]:
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or 0), name


def _time_limit(row: NodeRow, now: float) -> str:
    return "infinite" if not row.time_limit else format_elapsed(row.time_limit)


def _gpus_used(row: NodeRow, now: float) -> str:
    used = {f"gpu:{float(node.get('gpus_used') or 0):g}" for node in row.nodes if node.get("gpus")}
    return ",".join(sorted(used)) or "(null)"


def _fixed(header: str, text: str) -> Column:
    return Column(header, 0, lambda row, now: text)


def _free_memory(row: NodeRow, now: float) -> str:
    return str(int(row.total("memory") - row.total("memory_used"))) if row.nodes else "N/A"


def _reason(row: NodeRow, now: float) -> str:
    return next((str(node["reason"]) for node in row.nodes if node.get("reason")), "none")


def _by_use(row: NodeRow, now: float) -> str:
    return "/".join(map(str, _nodes_by_use(row)))


LETTERS: dict[str, Column] = {
    "a": _fixed("AVAIL", "up"),
    "A": Column("NODES(A/I)", 0, lambda row, now: "{}/{}".format(*_nodes_by_use(row))),
    "b": _fixed("ACTIVE_FEATURES", "(null)"),
    "B": _fixed("MAX_CPUS_PER_NODE", "UNLIMITED"),
    "c": Column("CPUS", 0, lambda row, now: row.each("cpus")),
    "C": Column("CPUS(A/I/O/T)", 0, _cpus_by_use),
    "d": _fixed("TMP_DISK", "0"),
    "D": Column("NODES", 0, lambda row, now: str(len(row.nodes))),
    "e": Column("FREE_MEM", 0, _free_memory),
    "E": Column("REASON", 0, _reason),
    "f": _fixed("AVAIL_FEATURES", "(null)"),
    "F": Column("NODES(A/I/O/T)", 0, _by_use),
    "g": _fixed("GROUPS", "all"),
    "G": Column("GRES", 0, _gres),
    "h": _fixed("OVERSUBSCRIBE", "NO"),
    "H": _fixed("TIMESTAMP", "Unknown"),
    "I": _fixed("PRIO_JOB_FACTOR", "1"),
    "l": Column("TIMELIMIT", 0, _time_limit, cut=False),
    "L": _fixed("DEFAULTTIME", "n/a"),
    "m": Column("MEMORY", 0, lambda row, now: row.each("memory")),
    "M": _fixed("PREEMPT_MODE", "OFF"),
    "n": Column("HOSTNAMES", 0, _names, cut=False),
    "N": Column("NODELIST", 0, _names, cut=False),
    "o": Column("NODE_ADDR", 0, _names, cut=False),
    "O": _fixed("CPU_LOAD", "N/A"),
    "p": _fixed("PRIO_TIER", "1"),
    "P": Column("PARTITION", 0, _partition, marked=True),
    "r": _fixed("ROOT", "no"),
    "R": Column("PARTITION", 0, lambda row, now: row.partition),
    "s": _fixed("JOB_SIZE", "1-infinite"),
    "S": _fixed("ALLOCNODES", "all"),
    "t": Column("STATE", 0, _short_state),
    "T": Column("STATE", 0, _long_state),
    "u": _fixed("USER", "Unknown"),
    "U": _fixed("USER", "Unknown"),
    "v": _fixed("VERSION", "N/A"),
    "V": Column("CLUSTER", 0, lambda row, now: row.cluster or "N/A"),
    "w": _fixed("WEIGHT", "1"),
    "X": Column("SOCKETS", 0, lambda row, now: row.each("cpus")),
    "Y": _fixed("CORES", "1"),
    "z": Column("S:C:T", 0, lambda row, now: f"{row.each('cpus')}:1:1"),
    "Z": _fixed("THREADS", "1"),
}
_NAMED = (
    "AllocNodes:S Available:a Cluster:V Cores:Y CPUs:c CPUsLoad:O CPUsState:C DefaultTime:L Disk:d Features:f"
    " features_act:b FreeMem:e Gres:G Groups:g MaxCPUsPerNode:B Memory:m NodeAddr:o NodeAI:A NodeAIOT:F NodeHost:n"
    " NodeList:N Nodes:D OverSubscribe:h Partition:P PartitionName:R PreemptMode:M PriorityJobFactor:I PriorityTier:p"
    " Reason:E Root:r Share:h Size:s SocketCoreThread:z Sockets:X StateCompact:t StateLong:T Threads:Z Time:l"
    " TimeStamp:H User:u UserLong:U Version:v Weight:w"
)
NAMES: dict[str, Column] = {
    **{name: LETTERS[letter] for name, _, letter in (item.partition(":") for item in _NAMED.split())},
    "AllocMem": Column("ALLOCMEM", 0, lambda row, now: row.each("memory_used")),
    "Comment": _fixed("COMMENT", "(null)"),
    "Extra": _fixed("EXTRA", "(null)"),
    "GresUsed": Column("GRES_USED", 0, _gpus_used),
    "Port": _fixed("PORT", "0"),
    "Reservation": _fixed("RESERVATION", ""),
    "StateComplete": Column("STATECOMPLETE", 0, _long_state),
}

# With one of these in the format, nodes that differ in it are not shown together.
_SPLITTING: dict[str, str] = {
    "HOSTNAMES": "name",
    "NODE_ADDR": "name",
    "CPUS": "cpus",
    "MEMORY": "memory",
    "GRES": "gpus",
    "GRES_USED": "gpus_used",
    "ALLOCMEM": "memory_used",
    "REASON": "reason",
    "FREE_MEM": "memory_used",
}


def gather(nodes: Iterable[Mapping[str, Any]], columns: Iterable[Column], by_node: bool) -> list[NodeRow]:
    """Gather nodes into lines: by partition, state and the like, where the format shows them.

    `by_node` (-N) gives every node a line of its own for each of its partitions, by name.
    """
    shown = {column.header for column in columns}
    by_state = bool(shown & {"STATE", "STATECOMPLETE"})
    by_partition = by_node or "PARTITION" in shown
    splitting = [key for header, key in _SPLITTING.items() if header in shown]
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for node in nodes:
        key = (
            node.get("cluster", ""),
            node.get("partition", "") if by_partition else "",
            node.get("state", "") if by_state else "",
            node.get("name", "") if by_node else "",
            node.get("time_limit") if "TIMELIMIT" in shown else None,
            *(node.get(name) for name in splitting),
        )
        members = groups.setdefault(key, [])
        if by_partition or all(member.get("name") != node.get("name") for member in members):
            members.append(node)
    rows = []
    for key, members in groups.items():
        first = members[0]
        limit = first.get("time_limit")
        rows.append(NodeRow(str(key[1]), bool(first.get("default")), str(key[0]), limit, str(key[2]), tuple(members)))
    return sorted(rows, key=lambda row: _name_key(str(row.nodes[0]["name"]))) if by_node else rows


def empty_rows(nodes: Iterable[Mapping[str, Any]], rows: Iterable[NodeRow]) -> list[NodeRow]:
    """A line without nodes, as sinfo prints it, for each partition whose nodes were all filtered out."""
    shown = {(row.cluster, row.partition) for row in rows}
    found: dict[tuple[str, str], NodeRow] = {}
    for node in nodes:
        key = (str(node.get("cluster", "")), str(node.get("partition", "")))
        if key not in shown:
            found.setdefault(key, NodeRow(key[1], bool(node.get("default")), key[0], node.get("time_limit"), "", ()))
    return list(found.values())
