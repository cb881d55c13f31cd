"""On which nodes pods may run: the cluster's selector and tolerations, devices, and shared or separate nodes. Pure."""

from __future__ import annotations

from typing import Any

from overspan.adapters.kubernetes.launches.gang import GANG_SCHEDULERS, MAX_POD_SETS, GangBackend
from overspan.adapters.kubernetes.manifests.names import GUEST, HOST
from overspan.adapters.kubernetes.manifests.partitions import list_expressions
from overspan.adapters.kubernetes.manifests.resources import Needs
from overspan.adapters.kubernetes.observation.records import LAUNCH, TASK
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.job import Job
from overspan.bridge.model.names import dns_label, member_name
from overspan.bridge.model.spec import TaskSpec

Document = dict[str, Any]

_NODE = "kubernetes.io/hostname"
_AWAY = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
AWAY_SECONDS = 30
"""How long a pod stays on a node that does not answer; Kubernetes' own is 300."""


def render_tolerations(settings: Settings, needs: Needs) -> list[Document]:
    """The cluster's, those for devices, and a short one for nodes that are lost, unless the cluster has its own."""
    found = [dict(item) for item in settings.tolerations]
    found += [item for item in needs.tolerations if item not in found]
    for key in _AWAY:
        if not any(_covers(item, key) for item in found):
            found.append({"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": AWAY_SECONDS})
    return found


def _covers(toleration: Document, key: str) -> bool:
    return bool(toleration.get("key", key) == key) and bool(toleration.get("effect", "NoExecute") == "NoExecute")


def render_affinity(token: str, task: TaskSpec, needs: Needs) -> Document:
    """What holds for every pod of a task: nodes with its GPUs, and nodes of its own."""
    affinity: Document = {}
    expressions = [*needs.expressions, *list_expressions(task)]
    if expressions:
        terms = [{"matchExpressions": [dict(item) for item in expressions]}]
        affinity["nodeAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    if task.spread:
        # Its own guests, tasks that share its nodes, may come.
        others = [
            {"key": LAUNCH, "operator": "In", "values": [token]},
            {"key": GUEST, "operator": "NotIn", "values": [dns_label(task.name)]},
        ]
        affinity["podAntiAffinity"] = _require([{"matchExpressions": others}])
    return affinity


def mark_member(job: Job, task: TaskSpec, index: int, backend: GangBackend) -> dict[str, str]:
    """Labels by which people select a task's pods, and tasks that share nodes find each other.

    Labels are part of a pod set in older releases of Kueue (`members_only`; getRoleHash), so that there all nodes of a
    task have the same, and tasks that are alike stay one pod set where there are more than it has pod sets.
    """
    kueue = GANG_SCHEDULERS[backend].members_only
    labels = {}
    if not kueue or task.share or len(job.spec.tasks) <= MAX_POD_SETS:
        labels[TASK] = dns_label(task.name)
    if any(other.share == task.name for other in job.spec.tasks):
        labels[HOST] = dns_label(task.name) if kueue else member_name(task.name, index)
    if task.share:
        labels[GUEST] = dns_label(task.share)
    return labels


def render_company(token: str, task: TaskSpec, index: int, backend: GangBackend) -> Document:
    """The affinity of a member that shares the node of another task's member: the one of its own number.

    Under Kueue it is any one that no other of its task shares.
    """
    if not task.share:
        return {}
    host = dns_label(task.share) if GANG_SCHEDULERS[backend].members_only else member_name(task.share, index)
    affinity: Document = {"podAffinity": _require([{"matchLabels": {LAUNCH: token, HOST: host}}])}
    if GANG_SCHEDULERS[backend].members_only and task.num_nodes > 1:
        own = {LAUNCH: token, TASK: dns_label(task.name)}
        affinity["podAntiAffinity"] = _require([{"matchLabels": own}])
    return affinity


def _require(selectors: list[Document]) -> Document:
    terms = [{"labelSelector": selector, "topologyKey": _NODE} for selector in selectors]
    return {"requiredDuringSchedulingIgnoredDuringExecution": terms}
