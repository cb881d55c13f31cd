"""Whether a cluster has room for a launch just now: nodes and what their pods asked for, against what it needs.

What is found too small is so for certain: each rule here lets through more than the scheduler does. What passes may
still have no place (affinity, the packing of unlike pods), which is then seen by its pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.api.answers import Answer
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.quantities import Amounts, add_amounts, read_amounts, sum_requests, write_amount
from overspan.adapters.kubernetes.observation.nodes import LIVE, judge_away, list_parts, read_part
from overspan.adapters.kubernetes.settings import Settings

Document = Mapping[str, Any]
_DUST = 1e-6
"""Of adding fractions."""


class Need(NamedTuple):
    """So many pods alike: what each asks for, and which nodes take it."""

    pods: int
    amounts: Amounts
    selector: Mapping[str, str]
    tolerations: tuple[Document, ...] = ()


@dataclass(frozen=True)
class Room:
    """One node and what is free there."""

    document: Document
    free: Amounts

    def takes(self, need: Need, settings: Settings) -> bool:
        """Whether pods of that kind may go there at all."""
        labels = (self.document.get("metadata") or {}).get("labels") or {}
        if any(labels.get(name) != value for name, value in need.selector.items()):
            return False
        return judge_away(self.document, settings, need.tolerations) is None

    def count(self, amounts: Amounts) -> int:
        """How many pods of that size it has room for, and no others."""
        asked = [(self.free.get(name, 0.0), value) for name, value in amounts.items() if value > 0]
        return max(0, min(int((free + _DUST) / value) for free, value in asked))

    def subtract(self, amounts: Amounts) -> Amounts:
        """What is left of these resources when as many pods of that size are here as there is room for."""
        count = self.count(amounts)
        return {name: self.free.get(name, 0.0) - count * value for name, value in amounts.items()}


def read_need(pod: Document, count: int) -> Need:
    """What pods like this one need."""
    spec = pod.get("spec") or {}
    amounts = add_amounts((sum_requests(spec), {"pods": 1.0}))
    return Need(count, amounts, spec.get("nodeSelector") or {}, tuple(spec.get("tolerations") or ()))


def ask_rooms(connection: Connection, settings: Settings) -> list[Room] | None:
    """All nodes; None where nodes or the pods of all namespaces cannot be listed, so that nothing is known.

    Blocking. Raises Unreachable, TimedOut and other refusals.
    """
    nodes: list[Document] = []
    for part in list_parts(connection, "/api/v1/nodes", {}):
        if isinstance(part, Answer):
            return None
        nodes += part
    used: dict[str, list[Amounts]] = {}
    for part in list_parts(connection, "/api/v1/pods", {"fieldSelector": LIVE}):
        if isinstance(part, Answer):
            return None
        for pod in read_part(part, "list pods"):
            spec = pod.get("spec") or {}
            used.setdefault(spec.get("nodeName") or "", []).append(add_amounts((sum_requests(spec), {"pods": 1.0})))
    return [_read_room(node, used) for node in nodes]


def _read_room(node: Document, used: Mapping[str, Iterable[Amounts]]) -> Room:
    metadata, status = node.get("metadata") or {}, node.get("status") or {}
    total = read_amounts(status.get("allocatable") or status.get("capacity"))
    taken = add_amounts(used.get(str(metadata.get("name") or ""), ()))
    # A node that does not tell how many pods it takes has no such limit.
    total.setdefault("pods", float("inf"))
    return Room(node, {name: value - taken.get(name, 0.0) for name, value in total.items()})


def _describe_lack(need: Need, rooms: Sequence[Room], settings: Settings) -> str:
    """What one more pod needs, and the most that any node would have left for it."""
    left = [room.subtract(need.amounts) for room in rooms if room.takes(need, settings)]
    if not left:
        return "no node takes such pods (labels, taints, or not ready)"
    best = max(left, key=lambda free: min(free[name] / value for name, value in need.amounts.items() if value > 0))
    lacks = [name for name, value in need.amounts.items() if value > best[name] + _DUST]
    needs = ", ".join(write_amount(name, need.amounts[name]) for name in lacks)
    rest = ", ".join(write_amount(name, max(0.0, best[name])) for name in lacks)
    return f"the next needs {needs}, and a node has {rest} left"


def find_shortage(needs: Sequence[Need], rooms: Sequence[Room], settings: Settings) -> str:
    """What makes it certain that not all pods have a place now, in words; empty where they may have."""
    most = [sum(room.count(need.amounts) for room in rooms if room.takes(need, settings)) for need in needs]
    wanted = sum(need.pods for need in needs)
    placed = sum(min(need.pods, count) for need, count in zip(needs, most, strict=True))
    if placed < wanted:
        first = next(need for need, count in zip(needs, most, strict=True) if count < need.pods)
        return f"{placed} of {wanted} pods have room: {_describe_lack(first, rooms, settings)}"
    open_rooms = [room for room in rooms if any(room.takes(need, settings) for need in needs)]
    free = add_amounts({name: max(0.0, value) for name, value in room.free.items()} for room in open_rooms)
    asked = add_amounts({name: need.pods * value for name, value in need.amounts.items()} for need in needs)
    short = [name for name, value in asked.items() if value > free.get(name, 0.0) + _DUST]
    return f"all together lack {', '.join(sorted(short))}" if short else ""
