"""All pods of a group, or none: what the cluster has for it, and the objects and marks that it wants. Pure.

Native PodGroups are those of kube-scheduler (scheduling.k8s.io, gate GenericWorkload; KEP-4671), whose fields have new
names in each release. Kueue takes plain pods as a group. Without either the pods wait at their start gates (soft).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.manifests.names import label_launch, name_anchor
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Start

Document = dict[str, Any]

GROUP = "scheduling.k8s.io"
KUEUE_GROUP = "kueue.x-k8s.io"
MAX_POD_SETS = 8
"""Pod sets in one group that Kueue admits (its documentation of plain pod groups)."""
MEMBER_LABEL = f"{KUEUE_GROUP}/pod-group-name"
_QUEUE = f"{KUEUE_GROUP}/queue-name"
_TOTAL = f"{KUEUE_GROUP}/pod-group-total-count"


class GangBackend(StrEnum):
    """How the pods of a launch start together."""

    V1BETA1 = "v1beta1"
    V1ALPHA3 = "v1alpha3"
    V1ALPHA2 = "v1alpha2"
    KUEUE = "kueue"
    SOFT = "soft"
    ALONE = "alone"
    """Each pod as it can: there is only one, or the job starts independently."""


NATIVE_BACKENDS = (GangBackend.V1BETA1, GangBackend.V1ALPHA3, GangBackend.V1ALPHA2)
"""Versions of the PodGroup, the best first."""

WORDS = {
    GangBackend.V1BETA1: "the scheduler's PodGroup (scheduling.k8s.io/v1beta1)",
    GangBackend.V1ALPHA3: "the scheduler's PodGroup (scheduling.k8s.io/v1alpha3)",
    GangBackend.V1ALPHA2: "the scheduler's PodGroup (scheduling.k8s.io/v1alpha2)",
    GangBackend.KUEUE: "a pod group of Kueue",
    GangBackend.SOFT: "gates of the pods: all start when all are bound",
    GangBackend.ALONE: "each pod as it can",
}


class BackendChoice(NamedTuple):
    """The backend of one launch, and why it is not the cluster's best, where it is not."""

    backend: GangBackend
    why: str = ""


def count_pods(job: Job) -> int:
    """How many pods a launch starts with; tasks that are over have none."""
    return sum(spec.num_nodes for spec, task in zip(job.spec.tasks, job.tasks, strict=True) if not task.over)


def count_gang(job: Job) -> int:
    """How many pods start as one."""
    return count_pods(job) if job.spec.start is Start.TOGETHER else 1


def choose_backend(job: Job, best: GangBackend, templates: Sequence[Mapping[str, Any]]) -> BackendChoice:
    """The backend of a launch; `templates`: a pod of each task. InvalidRequest for more pod sets than Kueue takes."""
    count = count_gang(job)
    if best is GangBackend.KUEUE:
        shapes = {describe_pod_set(pod) for pod in templates}
        if len(shapes) > MAX_POD_SETS and count > 1:
            raise InvalidRequest(
                f"the group has {len(shapes)} shapes of pods, and Kueue admits groups of at most {MAX_POD_SETS}",
                remedy="give tasks the same image, resources and placement where that is possible",
            )
        return BackendChoice(GangBackend.KUEUE)
    if count == 1:
        return BackendChoice(GangBackend.ALONE)
    if best not in NATIVE_BACKENDS:
        return BackendChoice(GangBackend.SOFT)
    if any(task.share for task in job.spec.tasks):
        return BackendChoice(GangBackend.SOFT, "the scheduler's PodGroup finds no place for tasks that share nodes")
    for key in ("schedulerName", "priorityClassName"):
        if len({pod["spec"].get(key) for pod in templates}) > 1:
            return BackendChoice(GangBackend.SOFT, f"the scheduler's PodGroup wants one {key} for all tasks")
    return BackendChoice(best)


def render_group(backend: GangBackend, token: str, count: int, template: Mapping[str, Any]) -> tuple[Document, ...]:
    """The objects beside the pods: one flat PodGroup for all of them, which are preempted together."""
    if backend not in NATIVE_BACKENDS:
        return ()
    spec: Document = {"schedulingPolicy": {"gang": {"minCount": count}}}
    spec["disruptionMode"] = "PodGroup" if backend is GangBackend.V1ALPHA2 else {"all": {}}
    if template["spec"].get("priorityClassName"):
        spec["priorityClassName"] = template["spec"]["priorityClassName"]
    return (
        {
            "apiVersion": f"{GROUP}/{backend.value}",
            "kind": "PodGroup",
            "metadata": {"name": name_anchor(token), "labels": label_launch(token)},
            "spec": spec,
        },
    )


def mark_pod(
    backend: GangBackend, token: str, count: int, queue: str
) -> tuple[dict[str, str], dict[str, str], Document]:
    """Labels, annotations and fields of the spec that make a pod of the first attempt a part of its group."""
    if backend in NATIVE_BACKENDS:
        return {}, {}, {"schedulingGroup": {"podGroupName": name_anchor(token)}}
    if backend is not GangBackend.KUEUE:
        return {}, {}, {}
    labels = {_QUEUE: queue}
    if count == 1:
        return labels, {}, {}
    labels[MEMBER_LABEL] = name_anchor(token)
    return labels, {_TOTAL: str(count)}, {}


def joins_later(backend: GangBackend) -> bool:
    """Whether pods of later attempts are of the group too.

    Kueue admits only pods of the group. A placed PodGroup is not joined: once some of its pods have ended, its minimum
    would never be reached again.
    """
    return backend is GangBackend.KUEUE


def describe_pod_set(pod: Mapping[str, Any]) -> str:
    """What makes a pod set in Kueue (its role hash): labels, containers, placement, priority, claims."""
    spec = pod["spec"]
    labels = pod["metadata"].get("labels") or {}
    claims = [
        volume["persistentVolumeClaim"] for volume in spec.get("volumes", ()) if "persistentVolumeClaim" in volume
    ]
    seen = {
        "labels": {name: value for name, value in labels.items() if not name.startswith(f"{KUEUE_GROUP}/")},
        "containers": [_describe_container(item) for item in spec["containers"]],
        "initContainers": [_describe_container(item) for item in spec.get("initContainers", ())],
        "claims": claims,
        **{key: spec.get(key) for key in _PLACED_BY},
    }
    return json.dumps(seen, sort_keys=True)


_PLACED_BY = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priority",
    "priorityClassName",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)


def _describe_container(container: Mapping[str, Any]) -> list[Any]:
    requests = (container.get("resources") or {}).get("requests")
    return [container.get("image"), requests, container.get("ports")]
