"""What fixes a refusal of the API, by its words. Pure.

Facts: messages of apiserver's authorizer and of its admission plug-ins (ResourceQuota, LimitRanger, PodSecurity,
Priority, ServiceAccount). All of them answer 403, as a missing right does.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from overspan.adapters.kubernetes.api.answers import ApiAnswer, is_quota

RIGHTS = "`span check` lists the rights that are missing, and what grants them"
_QUOTA = "it is tried again when the quota has room: `kubectl describe quota` shows what it has; or ask for less"
AS_SOMEBODY = "kubernetes: {spec: {securityContext: {runAsUser: 1000, runAsGroup: 1000, fsGroup: 1000}}}"
"""The overlay for a namespace that refuses containers that run as root, as it stands in a cluster's settings."""
_CONTEXT = (
    "give pods what the policy asks for by `kubernetes` of this cluster; docs/kubernetes-admins.md has an example"
)
_RESTRICTED = 'violates PodSecurity "restricted'
_UNKNOWN = "an admission rule of the cluster refuses it: its message says why; its administrators know the rule"


class Obstacle(NamedTuple):
    """Why something cannot be done, and what fixes it."""

    message: str
    remedy: str = ""


_REMEDIES = (
    (re.compile(r"\bcannot \w+ resource \""), RIGHTS),
    (
        re.compile(r"failed quota: .*must specify"),
        "the namespace's quota wants each pod to name these: write `cpus` and `memory` (-c, --mem), "
        "or give all pods some by `cpus`, `memory` and `kubernetes:` of this cluster",
    ),
    (
        re.compile(r"(maximum|minimum) \S+ (usage|limit)|limit to request ratio", re.IGNORECASE),
        "ask for what the namespace's limits allow: `kubectl describe limits` shows them",
    ),
    (re.compile(r"violates PodSecurity"), _CONTEXT),
    (
        re.compile(r"PriorityClass", re.IGNORECASE),
        "name one that `kubectl get priorityclasses` lists, or map it by `priority_classes` of this cluster",
    ),
    (
        re.compile(r"service ?account", re.IGNORECASE),
        "set `service_account` of this cluster to one that `kubectl get serviceaccounts` lists",
    ),
)


def find_remedy(answer: ApiAnswer, security: str = "") -> str:
    """What fixes a refusal; '' where its own words are all that is known. `security` is the cluster's setting."""
    if is_quota(answer):
        return _QUOTA
    if answer.status == 404 and answer.message.startswith("namespaces "):
        return "make the namespace, or set `namespace` of this cluster"
    if answer.status == 403 and _RESTRICTED in answer.message and not security:
        return f"write `security: restricted` for this cluster, and where its image runs as root `{AS_SOMEBODY}`"
    if answer.status != 403:
        return ""
    return next((remedy for pattern, remedy in _REMEDIES if pattern.search(answer.message)), _UNKNOWN)
