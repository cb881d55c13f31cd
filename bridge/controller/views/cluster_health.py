"""Health of the clusters: which answer, since when others do not, what their nodes have, and what works there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from overspan.adapters.abilities import Check, Finding
from overspan.adapters.contract import Node
from overspan.bridge.controller.core.cluster_locations import ClusterLocations
from overspan.bridge.controller.core.clusters import Cluster, time_call
from overspan.bridge.controller.core.recording import Clock
from overspan.bridge.controller.core.registry import Registry
from overspan.bridge.model.errors import InvalidRequest, OverspanError

_TOLD_TRAITS = ("this_machine", "own_queue", "captures_logs")
"""Fields of `Traits` that a client acts on."""


class ClusterHealth:
    """What is told of clusters; `since` is when the daemon started, epoch seconds."""

    def __init__(
        self,
        registry: Registry,
        locations: ClusterLocations,
        clock: Clock,
        check_tunnel: Callable[[str], list[Finding]] = lambda name: [],
    ) -> None:
        self._registry = registry
        self._check_tunnel = check_tunnel
        self._locations = locations
        self._clusters = locations.clusters
        self._clock = clock
        self.since = clock()

    def move_clock(self, seconds: float) -> None:
        """The machine's clock was set by so much."""
        self.since += seconds

    def list_stale(self) -> list[dict[str, Any]]:
        """The clusters that do not answer, or not in full, and those that are not configured any more."""
        stale = [
            {"cluster": cluster.name, "since": cluster.stale_since, "message": cluster.message}
            for cluster in self._clusters
            if cluster.stale_since is not None
        ]
        stale += [
            {"cluster": cluster.name, "since": cluster.gap_since, "message": cluster.gap, "partial": True}
            for cluster in self._clusters
            if cluster.stale_since is None and cluster.gap
        ]
        stale += [
            {"cluster": name, "since": self.since, "message": trouble.line}
            for name, trouble in self._locations.list_troubles().items()
            if self._clusters.find(name) is None
        ]
        return stale

    def list_clusters(self) -> list[dict[str, Any]]:
        """Every cluster with its health and how many live jobs it has: those configured, and others that have any."""
        counts: dict[str, int] = {}
        for entry in self._registry:
            for name in () if entry.job.over else self._clusters.list_single(entry.cluster):
                counts[name] = counts.get(name, 0) + 1
        troubles = self._locations.list_troubles()
        configured = [
            {
                "name": cluster.name,
                "kind": cluster.config.kind,
                "default": cluster.name == self._clusters.default,
                "state": _name_state(cluster, cluster.name in troubles),
                "since": cluster.stale_since,
                "message": troubles[cluster.name].line if cluster.name in troubles else cluster.message,
                "jobs": counts.get(cluster.name, 0),
                "answered_at": cluster.answered_at,
                "answer_seconds": cluster.answer_seconds,
                "calls_left": _count_calls(cluster),
                "traits": _name_traits(cluster),
            }
            for cluster in self._clusters
        ]
        return configured + [
            {
                "name": name,
                "kind": "",
                "default": False,
                "state": "unconfigured",
                "since": self.since,
                "message": troubles[name].line,
                "jobs": count,
                "answered_at": None,
                "answer_seconds": None,
                "calls_left": "",
                "traits": [],
            }
            for name, count in sorted(self._locations.count_absent().items())
        ]

    async def nodes(self, names: Sequence[str]) -> tuple[list[tuple[str, Node]], list[dict[str, str]]]:
        """Nodes of these clusters (none named: the default one and those in use), and each cluster with its trouble."""
        if names:
            chosen = [self._clusters.get(name) for name in dict.fromkeys(names)]
        else:
            chosen = [cluster for cluster in self._clusters if cluster.opened or cluster.name == self._clusters.default]
        nodes: list[tuple[str, Node]] = []
        answers: list[dict[str, str]] = []
        for cluster in chosen:
            message, began = "", time_call()
            try:
                nodes += [(cluster.name, node) for node in await cluster.adapter.nodes()]
                cluster.note_answer(self._clock(), time_call() - began)
            except OverspanError as error:
                message = error.line
            answers.append({"name": cluster.name, "message": message})
        return nodes, answers

    async def check(self, name: str, user: str = "") -> list[Finding]:
        """What works on a cluster, for that user where it is reached as each, and what to do about the rest."""
        trouble = self._locations.find_trouble(name)
        if trouble is not None:
            return [Finding("place", False, trouble.message, trouble.remedy)]
        adapter = self._clusters.get(name).adapter_for(user)
        if not isinstance(adapter, Check):
            raise InvalidRequest(f"the cluster {name} cannot be checked")
        findings: list[Finding] = await adapter.check()
        return findings + self._check_tunnel(name)


def _count_calls(cluster: Cluster) -> str:
    """What is left of the cluster's limit of calls, in words; empty where it has none, or nothing was sent there."""
    calls_left = cluster.traits.calls_left if cluster.opened else None
    return "" if calls_left is None else calls_left()


def _name_traits(cluster: Cluster) -> list[str]:
    """What clients do differently for it; nothing is known before it is opened."""
    return [name for name in _TOLD_TRAITS if cluster.opened and getattr(cluster.traits, name)]


def _name_state(cluster: Cluster, displaced: bool) -> str:
    if displaced:
        return "displaced"
    return "stale" if cluster.stale_since is not None else "up" if cluster.opened else "idle"
