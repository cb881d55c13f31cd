"""Node capacity: whether any node could ever hold each task, for clusters that accept jobs that never start. Pure.

Nodes in all states count. Where nothing is known of them, everything fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from overspan.adapters.contract import Node
from overspan.bridge.model.job import Job
from overspan.bridge.model.resources import MILLI, NodeNeed
from overspan.bridge.model.spec import TaskSpec


def find_misfit(job: Job, nodes: Sequence[Node]) -> str:
    """What no node has of what a task names; empty where each could be placed."""
    for task in job.spec.tasks:
        partition = str(task.native.get("slurm", {}).get("partition", "") or job.spec.partition)
        known = [node for node in nodes if not partition or node.partition in partition.split(",")] or list(nodes)
        needs = _list_needs(task)
        if known and not any(_holds(node, need) for node in known for need in needs):
            largest = max(known, key=lambda node: (node.gpus, node.cpus, node.memory))
            return f"no node has {_describe(needs[0])} for {task.name}: {_describe_node(largest)}"
    return ""


def _list_needs(task: TaskSpec) -> list[NodeNeed]:
    """What is named; what GPUs bring with them is cut to the nodes."""
    resources = replace(task.resources, gpu_defaults=None)
    return list(resources.needs(default_cpus=1 / MILLI))


def _holds(node: Node, need: NodeNeed) -> bool:
    kind, has = need.gpu_kind.lower(), node.gpu_kind.lower()
    same = not need.gpu_milli or not kind or not has or has.startswith(kind)
    enough = node.cpus * MILLI >= need.cpu_milli and node.gpus * MILLI >= need.gpu_milli
    return same and enough and (not node.memory or node.memory >= (need.memory_mib or 0))


def _describe_node(node: Node) -> str:
    parts = [f"{node.cpus:g} CPUs", *([f"{node.memory} MiB"] if node.memory else [])]
    parts += [f"{node.gpus} {node.gpu_kind} GPUs".replace("  ", " ")] if node.gpus else []
    return f"the largest, {node.name}, has {', '.join(parts)}"


def _describe(need: NodeNeed) -> str:
    parts = [f"{need.cpu_milli / MILLI:g} CPUs"] if need.cpu_milli >= MILLI else []
    parts += [f"{need.memory_mib} MiB"] if need.memory_mib else []
    parts += [f"{need.gpu_milli / MILLI:g} {need.gpu_kind} GPUs".replace("  ", " ")] if need.gpu_milli else []
    return ", ".join(parts) or "what is asked for"
