"""The nodes of each cluster by its last answer, and why there was no later one. Pure.

Clusters are asked one by one, so that a slow one delays no other. A cluster that does not answer keeps the nodes that
it told last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

FASTEST = 5.0
"""Seconds between two questions to a cluster that answers at once."""
FASTEST_SHARED = 15.0
"""The same where a queue is asked that serves many, as slurmctld does, and may limit calls."""
SLOWEST = 60.0
"""Seconds between two questions to one that does not answer."""
_SHARE = 10.0
"""A cluster is left alone for so many times what its last answer took."""
_ASKED_STATES = frozenset({"up", "stale"})
"""Clusters that are asked unbidden: the daemon has opened them already."""

NodeFacts = Mapping[str, Any]
"""A node in one of its partitions, as the daemon tells it."""


class ClusterNodes(NamedTuple):
    """The nodes of a cluster as they were `told_at` (the daemon's clock; None: never), and why not later."""

    name: str
    nodes: tuple[NodeFacts, ...] = ()
    told_at: float | None = None
    trouble: str = ""
    failures: int = 0
    wanted: bool = False
    """Whether the user has asked for it, though nothing was sent there yet."""
    own_queue: bool = False
    state: str = "up"
    """In the words of `span clusters`."""

    @property
    def old(self) -> bool:
        """Whether what is known of it may be wrong by now."""
        return bool(self.trouble)

    @property
    def asked(self) -> bool:
        """Whether it is asked without the user's doing."""
        return self.wanted or self.state in _ASKED_STATES


KnownNodes = Mapping[str, ClusterNodes]
"""By the cluster's name."""


def note_clusters(known: KnownNodes, clusters: Iterable[Mapping[str, Any]]) -> dict[str, ClusterNodes]:
    """Take the list of clusters: new ones come, those that are not configured any more go."""
    found = {}
    for cluster in clusters:
        name, state = str(cluster.get("name", "")), str(cluster.get("state", ""))
        # The default cluster is asked by `span sinfo` too, opened or not.
        state = "up" if state == "idle" and cluster.get("default") else state
        one = known.get(name, ClusterNodes(name))._replace(
            state=state, own_queue="own_queue" in cluster.get("traits", ())
        )
        if not one.asked and state != "idle":
            one = one._replace(trouble=str(cluster.get("message") or state))
        found[name] = one
    return found


def note_answer(known: KnownNodes, name: str, document: Mapping[str, Any]) -> dict[str, ClusterNodes]:
    """Take what the daemon says of a cluster's nodes; where it has a message in their place, the old ones stay."""
    answers = document.get("clusters") or ()
    trouble = next((str(each["message"]) for each in answers if each.get("name") == name and each.get("message")), "")
    if trouble:
        return note_failure(known, name, trouble)
    nodes = tuple(node for node in document.get("nodes") or () if node.get("cluster") == name)
    told_at = float(document.get("now") or 0.0)
    return _put(known, name, nodes=nodes, told_at=told_at, trouble="", failures=0)


def note_failure(known: KnownNodes, name: str, trouble: str) -> dict[str, ClusterNodes]:
    """Note that a question about a cluster had no answer."""
    before = known.get(name)
    return _put(known, name, trouble=trouble, failures=before.failures + 1 if before is not None else 1)


def _put(known: KnownNodes, name: str, **changes: Any) -> dict[str, ClusterNodes]:
    if name not in known:
        return dict(known)
    return {**known, name: known[name]._replace(**changes)}


def find_pause(cluster: ClusterNodes, took: float) -> float:
    """Seconds until a cluster is asked again: longer for a slow one, and for one that fails."""
    least = FASTEST_SHARED if cluster.own_queue else FASTEST
    return min(SLOWEST, max(least * float(1 << min(cluster.failures, 5)), took * _SHARE))


def count_states(clusters: Iterable[ClusterNodes]) -> tuple[int, int]:
    """How many nodes can work, and how many there are; one in several partitions counts once."""
    able: set[tuple[str, str]] = set()
    every: set[tuple[str, str]] = set()
    for cluster in clusters:
        for node in cluster.nodes:
            key = (cluster.name, str(node.get("name", "")))
            every.add(key)
            if is_able(str(node.get("state", ""))):
                able.add(key)
    return len(able), len(every)


def is_able(state: str) -> bool:
    """Whether a node in this state, in sinfo's words, answers and takes work."""
    return not state.endswith("*") and state.rstrip("~#!%$@^-") in ("idle", "mixed", "allocated", "completing")


def sum_nodes(nodes: Sequence[NodeFacts], key: str) -> float:
    """The sum of a number over nodes, each of which counts once."""
    each = {(node.get("cluster"), node.get("name")): float(node.get(key) or 0) for node in nodes}
    return sum(each.values())
