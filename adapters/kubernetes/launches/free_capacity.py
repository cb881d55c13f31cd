"""Free capacity: whether a launch may fit now, by the nodes and the requests of their pods.

A shortage is certain, since each rule here admits more than the scheduler does. A launch that passes may still not fit
(affinity, packing of unlike pods), which its pods then show.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.quantities import Amounts, add_amounts, read_amounts, sum_requests, write_amount
from overspan.adapters.kubernetes.observation.nodes import LIVE, judge_away, list_parts, read_part
from overspan.adapters.kubernetes.settings import Settings

Document = Mapping[str, Any]
_DUST = 1e-6
"""Tolerance for sums of fractions."""


class PodDemand(NamedTuple):
    """A number of equal pods: what each asks for, and which nodes take it."""

    pods: int
    amounts: Amounts
    selector: Mapping[str, str]
    tolerations: tuple[Document, ...] = ()


@dataclass(frozen=True)
class NodeCapacity:
    """One node and what is free there."""

    document: Document
    free: Amounts

    def takes(self, demand: PodDemand, settings: Settings) -> bool:
        """Whether labels and taints admit such pods."""
        labels = (self.document.get("metadata") or {}).get("labels") or {}
        if any(labels.get(name) != value for name, value in demand.selector.items()):
            return False
        return judge_away(self.document, settings, demand.tolerations) is None

    def count(self, amounts: Amounts) -> int:
        """How many pods of that size fit, if no others come."""
        asked = [(self.free.get(name, 0.0), value) for name, value in amounts.items() if value > 0]
        return max(0, min(int((free + _DUST) / value) for free, value in asked))

    def subtract(self, amounts: Amounts) -> Amounts:
        """What is left of these resources when as many pods of that size are here as there is room for."""
        count = self.count(amounts)
        return {name: self.free.get(name, 0.0) - count * value for name, value in amounts.items()}


def read_demand(pod: Document, count: int) -> PodDemand:
    """What pods like this one need."""
    spec = pod.get("spec") or {}
    amounts = add_amounts((sum_requests(spec), {"pods": 1.0}))
    return PodDemand(count, amounts, spec.get("nodeSelector") or {}, tuple(spec.get("tolerations") or ()))


def ask_capacity(connection: Connection, settings: Settings) -> list[NodeCapacity] | None:
    """All nodes; None where nodes or the pods of all namespaces cannot be listed, so that nothing is known.

    Blocking. Raises Unreachable, TimedOut and other refusals.
    """
    nodes: list[Document] = []
    for part in list_parts(connection, "/api/v1/nodes", {}):
        if isinstance(part, ApiAnswer):
            return None
        nodes += part
    used: dict[str, list[Amounts]] = {}
    for part in list_parts(connection, "/api/v1/pods", {"fieldSelector": LIVE}):
        if isinstance(part, ApiAnswer):
            return None
        for pod in read_part(part, "list pods"):
            spec = pod.get("spec") or {}
            used.setdefault(spec.get("nodeName") or "", []).append(add_amounts((sum_requests(spec), {"pods": 1.0})))
    return [_read_capacity(node, used) for node in nodes]


def _read_capacity(node: Document, used: Mapping[str, Iterable[Amounts]]) -> NodeCapacity:
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    total = read_amounts(status.get("allocatable") or status.get("capacity"))
    taken = add_amounts(used.get(str(metadata.get("name") or ""), ()))
    # A node without a limit on pods takes any number.
    total.setdefault("pods", float("inf"))
    return NodeCapacity(node, {name: value - taken.get(name, 0.0) for name, value in total.items()})


def _describe_lack(demand: PodDemand, capacities: Sequence[NodeCapacity], settings: Settings) -> str:
    """What one more pod asks for, and the most that any node would have left for it."""
    left = [capacity.subtract(demand.amounts) for capacity in capacities if capacity.takes(demand, settings)]
    if not left:
        return "no node takes such pods (labels, taints, or not ready)"
    best = max(left, key=lambda free: min(free[name] / value for name, value in demand.amounts.items() if value > 0))
    lacks = [name for name, value in demand.amounts.items() if value > best[name] + _DUST]
    demands = ", ".join(write_amount(name, demand.amounts[name]) for name in lacks)
    rest = ", ".join(write_amount(name, max(0.0, best[name])) for name in lacks)
    return f"the next needs {demands}, and a node has {rest} left"


def find_shortage(demands: Sequence[PodDemand], capacities: Sequence[NodeCapacity], settings: Settings) -> str:
    """Why it is certain that not all pods fit now, in words; empty where they may fit."""
    most = [
        sum(capacity.count(demand.amounts) for capacity in capacities if capacity.takes(demand, settings))
        for demand in demands
    ]
    wanted = sum(demand.pods for demand in demands)
    placed = sum(min(demand.pods, count) for demand, count in zip(demands, most, strict=True))
    if placed < wanted:
        first = next(demand for demand, count in zip(demands, most, strict=True) if count < demand.pods)
        return f"{placed} of {wanted} pods have room: {_describe_lack(first, capacities, settings)}"
    open_nodes = [capacity for capacity in capacities if any(capacity.takes(demand, settings) for demand in demands)]
    free = add_amounts({name: max(0.0, value) for name, value in capacity.free.items()} for capacity in open_nodes)
    asked = add_amounts({name: demand.pods * value for name, value in demand.amounts.items()} for demand in demands)
    short = [name for name, value in asked.items() if value > free.get(name, 0.0) + _DUST]
    return f"all together lack {', '.join(sorted(short))}" if short else ""
