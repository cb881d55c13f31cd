"""Room on a cluster for further members, and how many of them to give back to jobs that wait. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from overspan.adapters.contract import Node
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import split_clusters
from overspan.bridge.model.resources import MILLI, NodeNeed

_USABLE = ("idle", "mixed")
"""Nodes in other states take no work now."""
_SHORT = ("Resources", "Priority")
"""Reasons of jobs that wait for others to end; some are followed by the cluster's own words."""


def list_free(nodes: Iterable[Node], partition: str) -> list[NodeNeed]:
    """What is free on each node that takes work, in the named partition or the default one."""
    known = list(nodes)
    inside = [node for node in known if node.partition == partition] or [node for node in known if node.default]
    return [
        NodeNeed(
            int((node.cpus - node.cpus_used) * MILLI),
            node.memory - node.memory_used if node.memory else None,
            int((node.gpus - node.gpus_used) * MILLI),
            node.gpu_kind,
        )
        for node in inside
        if node.state.lower() in _USABLE
    ]


def count_room(free: Iterable[NodeNeed], needs: Sequence[NodeNeed]) -> int:
    """How many members fit, each of which takes one of the alternatives `needs`."""
    return sum(max((_count_fitting(node, need) for need in needs), default=0) for node in free)


def _count_fitting(free: NodeNeed, need: NodeNeed) -> int:
    kind, has = need.gpu_kind.lower(), free.gpu_kind.lower()
    if need.gpu_milli and kind and has and not has.startswith(kind):
        return 0
    pairs = [(free.cpu_milli, need.cpu_milli), (free.gpu_milli, need.gpu_milli)]
    if free.memory_mib is not None:
        pairs.append((free.memory_mib, need.memory_mib or 0))
    return min((max(0, have) // wanted for have, wanted in pairs if wanted), default=0)


def waits_for_room(job: Job, place: str, cluster: str) -> bool:
    """Whether a job waits in a cluster's queue for resources; `place` is where it is, on one cluster or on several.

    The reason of a group across names the cluster that it waits for.
    """
    across = cluster in split_clusters(place)
    reasons = tuple(f"{word}: {cluster}" for word in _SHORT) if across else _SHORT
    return (
        (across or place == cluster)
        and job.granted_at is None
        and not job.over
        and not job.held
        and job.ending is None
        and job.array is None
        and job.reason.startswith(reasons)
    )


def count_returned(free: Sequence[NodeNeed], waiting: Job, member: NodeNeed, cluster: str) -> int:
    """How many members have to end for a waiting job to fit on a cluster, as far as sums tell; at least one."""
    here = [spec for spec in waiting.spec.tasks if spec.cluster in ("", cluster) and not spec.share]
    needs = [spec.resources.need() for spec in here for _ in range(spec.num_nodes)]
    wanted = _add(needs)
    have = _add(free)
    parts = (
        (wanted.cpu_milli - have.cpu_milli, member.cpu_milli),
        ((wanted.memory_mib or 0) - (have.memory_mib or 0), member.memory_mib or 0),
        (wanted.gpu_milli - have.gpu_milli, member.gpu_milli),
    )
    return max([1, *(-(-short // each) for short, each in parts if each and short > 0)])


def _add(needs: Iterable[NodeNeed]) -> NodeNeed:
    listed = list(needs)
    return NodeNeed(
        sum(need.cpu_milli for need in listed),
        sum(need.memory_mib or 0 for need in listed),
        sum(need.gpu_milli for need in listed),
    )
