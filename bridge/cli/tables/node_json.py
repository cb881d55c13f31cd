"""JSON of nodes and partitions for sinfo --json and scontrol show, by the schema of data parser v0.0.40."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.cli.invocation import Invocation
from overspan.bridge.cli.tables.sinfo_fields import NodeRow
from overspan.bridge.cli.tables.slurm_json import write_document
from overspan.bridge.listings.values import Document, number
from overspan.bridge.model.slurm.hostlists import compress

Node = Mapping[str, Any]


def write_nodes(call: Invocation, nodes: Sequence[Sequence[Node]]) -> None:
    """Write nodes, each given once for each of its partitions."""
    write_document(call, {"nodes": [node_document(parts) for parts in nodes], "last_update": number(0)})


def write_partitions(call: Invocation, partitions: Mapping[str, Sequence[Node]]) -> None:
    """Write partitions with their nodes."""
    content = [partition_document(name, nodes) for name, nodes in partitions.items()]
    write_document(call, {"partitions": content, "last_update": number(0)})


def write_lines(call: Invocation, rows: Sequence[NodeRow]) -> None:
    """Write the lines of sinfo."""
    write_document(call, {"sinfo": [line_document(row) for row in rows]}, rows[0].cluster if rows else "")


def node_document(parts: Sequence[Node]) -> Document:
    """As Slurm has it in JSON; `parts` has the node once for each of its partitions."""
    node = parts[0]
    cpus, used = _count(node, "cpus"), _count(node, "cpus_used")
    memory, taken = _count(node, "memory"), _count(node, "memory_used")
    gpu = f"gpu:{node['gpu_kind']}:" if node.get("gpu_kind") else "gpu:"
    return {
        "name": node.get("name"),
        "address": node.get("name"),
        "hostname": node.get("name"),
        "cluster_name": node.get("cluster"),
        "architecture": node.get("arch") or "",
        "boards": 1,
        "cores": 1,
        "sockets": cpus,
        "threads": 1,
        "cpus": cpus,
        "effective_cpus": cpus,
        "alloc_cpus": used,
        "alloc_idle_cpus": cpus - used,
        "cpu_load": number(None),
        "free_mem": number(None),
        "real_memory": memory,
        "alloc_memory": taken,
        "features": [],
        "active_features": [],
        "gres": f"{gpu}{node['gpus']}" if node.get("gpus") else "",
        "gres_used": f"{gpu}{_count(node, 'gpus_used')}" if node.get("gpus") else "",
        "partitions": [part.get("partition") for part in parts],
        "reason": node.get("reason") or "",
        "state": _states(node),
        "temporary_disk": 0,
        "weight": 1,
        "tres": f"cpu={cpus},mem={memory}M,billing={cpus}",
        "tres_used": f"cpu={used},mem={taken}M" if used else "",
    }


def partition_document(name: str, nodes: Sequence[Node]) -> Document:
    """As Slurm has it in JSON; `nodes` are those of the partition."""
    limit = nodes[0].get("time_limit")
    cpus, memory = sum(_count(node, "cpus") for node in nodes), sum(_count(node, "memory") for node in nodes)
    return {
        "name": name,
        "cluster": nodes[0].get("cluster") or "",
        "nodes": {
            "allowed_allocation": "",
            "configured": compress([str(node.get("name")) for node in nodes]),
            "total": len(nodes),
        },
        "cpus": {"task_binding": 0, "total": cpus},
        "defaults": {"job": "", "memory_per_cpu": 0, "time": number(None)},
        "maximums": {
            "cpus_per_node": number(None, True),
            "memory_per_cpu": 0,
            "nodes": number(None, True),
            "time": number(None if limit is None else limit // 60, limit is None),
        },
        "minimums": {"nodes": 0},
        "partition": {"state": ["UP"]},
        "priority": {"job_factor": 1, "tier": 1},
        "tres": {"billing_weights": "", "configured": f"cpu={cpus},mem={memory}M,node={len(nodes)},billing={cpus}"},
    }


def line_document(row: NodeRow) -> Document:
    """One line of sinfo: nodes of a partition that are alike."""
    cpus, used = int(row.total("cpus")), int(row.total("cpus_used"))
    memory = [_count(node, "memory") for node in row.nodes] or [0]
    sizes = [_count(node, "cpus") for node in row.nodes] or [0]
    return {
        "port": 0,
        "node": {"state": _states(row.nodes[0]) if row.nodes else []},
        "nodes": _hosts(row),
        "cpus": {
            "allocated": used,
            "idle": cpus - used,
            "other": 0,
            "total": cpus,
            "minimum": min(sizes),
            "maximum": max(sizes),
            "load": {"minimum": number(None), "maximum": number(None)},
        },
        "sockets": {"minimum": min(sizes), "maximum": max(sizes)},
        "cores": {"minimum": 1, "maximum": 1},
        "threads": {"minimum": 1, "maximum": 1},
        "disk": {"minimum": 0, "maximum": 0},
        "memory": {"minimum": min(memory), "maximum": max(memory), "allocated": int(row.total("memory_used"))},
        "weight": {"minimum": 1, "maximum": 1},
        "features": {"total": "", "active": ""},
        "gres": {"total": f"gpu:{row.each('gpus')}" if row.total("gpus") else "", "used": ""},
        "cluster": row.cluster,
        "comment": "",
        "extra": "",
        "reason": {
            "description": next((str(n["reason"]) for n in row.nodes if n.get("reason")), ""),
            "time": number(0),
        },
        "reservation": "",
        "partition": partition_document(row.partition, row.nodes) if row.nodes else {"name": row.partition},
    }


def _hosts(row: NodeRow) -> Document:
    names = [str(node.get("name")) for node in row.nodes]
    busy = sum(_count(node, "cpus_used") > 0 for node in row.nodes)
    return {
        "allocated": busy,
        "idle": len(names) - busy,
        "other": 0,
        "total": len(names),
        "hostnames": names,
        "addresses": names,
        "nodes": names,
    }


def _states(node: Node) -> list[str]:
    """The state as base and flags: drained and draining are IDLE or MIXED with DRAIN, as in Slurm."""
    state = str(node.get("state", "")).rstrip("*").upper()
    if state in ("DRAINED", "DRAINING"):
        return ["IDLE" if state == "DRAINED" else "MIXED", "DRAIN"]
    return [state]


def _count(node: Node, key: str) -> int:
    return int(float(node.get(key) or 0))
