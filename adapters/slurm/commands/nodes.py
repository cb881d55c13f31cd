"""Nodes of a cluster: sinfo's answer as the contract's records, and addresses from scontrol."""

from __future__ import annotations

import re
from collections.abc import Iterable

from overspan.adapters.contract import Node
from overspan.adapters.slurm.commands.listings import (
    ask,
    join_format,
    read_limit,
    read_number,
    read_pairs,
    read_text,
    split_records,
)
from overspan.bridge.model.resources import Gpus

FIELDS = (
    "NodeList",
    "Partition",
    "StateLong",
    "CPUsState",
    "Memory",
    "AllocMem",
    "Gres",
    "GresUsed",
    "Time",
    "Reason",
)
"""Fields of sinfo's --Format; all of them exist from Slurm 20.11 to 26.05."""

# sinfo(1), NODE STATE CODES: a suffix shows a second condition, such as * for not responding.
_SUFFIXES = "*~#!%$@^-+"


def ask_nodes(clusters: str = "") -> tuple[str, ...]:
    """The command: one record for each node and partition, all partitions."""
    words = ["sinfo", "--noheader", "--Node", "--all"]
    if clusters:
        words.append(f"--clusters={clusters}")
    return ask(*words, f"--Format={join_format(FIELDS)}")


def read_nodes(text: str) -> list[Node]:
    """Read the answer; a record that cannot be read is left out."""
    nodes = []
    for fields in split_records(text, len(FIELDS)).records:
        node = _read_node(dict(zip(FIELDS, fields, strict=True)))
        if node is not None:
            nodes.append(node)
    return nodes


def _read_node(row: dict[str, str]) -> Node | None:
    cpus = re.fullmatch(r"\s*(\d+)/(\d+)/(\d+)/(\d+)\s*", row["CPUsState"])
    name = row["NodeList"].strip()
    if not cpus or not name:
        return None
    partition = row["Partition"].strip()
    kind, count = _sum_gpus(read_gpus(row["Gres"]))
    return Node(
        name=name,
        partition=partition.removesuffix("*"),
        state=row["StateLong"].strip().rstrip(_SUFFIXES),
        cpus=int(cpus[4]),
        cpus_used=int(cpus[1]),
        memory=read_number(row["Memory"]) or 0,
        memory_used=read_number(row["AllocMem"]) or 0,
        gpus=count,
        gpus_used=_sum_gpus(read_gpus(row["GresUsed"]))[1],
        gpu_kind=kind,
        reason=read_text(row["Reason"]),
        default=partition.endswith("*"),
        time_limit=_read_limit(row["Time"]),
    )


def _read_limit(text: str) -> int | None:
    return read_limit(text).seconds


def read_gpus(text: str) -> tuple[Gpus, ...]:
    """The GPUs of a Gres or GresUsed column: gpu:2, gpu:a100:4(S:0-1), gpu:a100:1(IDX:0), mixed with others."""
    found = []
    for item in re.sub(r"\((?!null)[^)]*\)", "", text).split(","):
        match = re.fullmatch(r"\s*gpu(?::([^:]+))??(?::(\d+))?\s*", item)
        if match and int(match[2] or 1):
            kind = match[1] or ""
            found.append(Gpus(int(match[2] or 1), "" if kind == "(null)" else kind))
    return tuple(found)


def _sum_gpus(gpus: Iterable[Gpus]) -> tuple[str, int]:
    listed = list(gpus)
    kinds = list(dict.fromkeys(gpu.kind for gpu in listed if gpu.kind))
    # Several kinds on one node are shown as the first: the contract has one name.
    return (kinds[0] if kinds else ""), sum(int(gpu.count) for gpu in listed)


def ask_addresses(names: str = "") -> tuple[str, ...]:
    """The command for the nodes' addresses; `names` is a host list, empty for all nodes."""
    return ask("scontrol", "--oneliner", "show", "node", *([names] if names else []))


def read_addresses(text: str) -> dict[str, str]:
    """NodeAddr by NodeName; a node without one is reached by its name."""
    addresses = {}
    for line in text.splitlines():
        pairs = dict(read_pairs(line))
        if "NodeName" in pairs:
            addresses[pairs["NodeName"]] = read_text(pairs.get("NodeAddr", "")) or pairs["NodeName"]
    return addresses
