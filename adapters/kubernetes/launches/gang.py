"""Gang scheduling: which gang scheduler a cluster has, and the objects and labels that it needs. Pure.

Native PodGroups are those of kube-scheduler (scheduling.k8s.io, gate GenericWorkload; KEP-4671), whose fields have new
names in each release. Kueue takes plain pods as a group. Without either the pods wait at their start gates (soft).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
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


class PodMarks(NamedTuple):
    """Labels, annotations and fields of the spec of a pod."""

    labels: Mapping[str, str] = {}
    annotations: Mapping[str, str] = {}
    fields: Mapping[str, Any] = {}


class ServedObject(NamedTuple):
    """An object that each launch has beside its pods; `resource` is its kind as paths and rights write it."""

    group: str
    version: str
    kind: str
    resource: str


def _mark_nothing(name: str, count: int, queue: str) -> PodMarks:
    return PodMarks()


def _specify_nothing(count: int, template: Document) -> Document:
    return {}


class GangScheduler(NamedTuple):
    """A backend, for all who ask about it: its words, what the cluster has to serve, what makes pods a group."""

    words: str
    """How `span plan` calls it."""
    short: str = ""
    """How a note calls it, where it is the choice for want of a better one."""
    served: ServedObject | None = None
    """Its object; a cluster that serves it, to a login that may create it, has this backend."""
    specify: Callable[[int, Document], Document] = _specify_nothing
    """The spec of its object: how many pods there are, and the first of them."""
    mark: Callable[[str, int, str], PodMarks] = _mark_nothing
    """What makes a pod a part of its group: the group's name, how many pods there are, the queue."""
    members_only: bool = False
    """Whether all pods of a launch are of the group, those of later attempts too, and all nodes of a task alike.

    A placed PodGroup is not joined: once some of its pods have ended, its minimum would never be reached again.
    """


def _make_native(version: str, disruption: object) -> GangScheduler:
    """One flat PodGroup of kube-scheduler, whose pods are preempted together."""

    def specify(count: int, template: Document) -> Document:
        spec: Document = {"schedulingPolicy": {"gang": {"minCount": count}}, "disruptionMode": disruption}
        if template["spec"].get("priorityClassName"):
            spec["priorityClassName"] = template["spec"]["priorityClassName"]
        return spec

    served = ServedObject(GROUP, version, "PodGroup", "podgroups")
    words = f"the scheduler's PodGroup ({GROUP}/{version})"
    return GangScheduler(words, served=served, specify=specify, mark=_mark_scheduling_group)


def _mark_scheduling_group(name: str, count: int, queue: str) -> PodMarks:
    return PodMarks(fields={"schedulingGroup": {"podGroupName": name}})


def _mark_for_kueue(name: str, count: int, queue: str) -> PodMarks:
    if count == 1:
        return PodMarks({_QUEUE: queue})
    return PodMarks({_QUEUE: queue, MEMBER_LABEL: name}, {_TOTAL: str(count)})


GANG_SCHEDULERS: Mapping[GangBackend, GangScheduler] = {
    GangBackend.V1BETA1: _make_native("v1beta1", {"all": {}}),
    GangBackend.V1ALPHA3: _make_native("v1alpha3", {"all": {}}),
    GangBackend.V1ALPHA2: _make_native("v1alpha2", "PodGroup"),
    GangBackend.KUEUE: GangScheduler("a pod group of Kueue", mark=_mark_for_kueue, members_only=True),
    GangBackend.SOFT: GangScheduler("gates of the pods: all start when all are bound", "the gates of its pods"),
    GangBackend.ALONE: GangScheduler("each pod as it can", "single pods"),
}
"""All backends; of those with an object of their own the first that a cluster has is taken."""


class BackendChoice(NamedTuple):
    """The backend of one launch, and why it is not the cluster's best, where it is not."""

    backend: GangBackend
    why: str = ""


def count_pods(job: Job) -> int:
    """How many pods a launch starts with; tasks that are over have none."""
    return sum(spec.num_nodes for spec, task in zip(job.spec.tasks, job.tasks, strict=True) if not task.over)


def count_gang(job: Job) -> int:
    """How many pods start as one."""
    return count_pods(job) if job.spec.start is not Start.INDEPENDENT else 1


def choose_backend(job: Job, best: GangBackend, templates: Sequence[Document]) -> BackendChoice:
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
    if GANG_SCHEDULERS[best].served is None:
        return BackendChoice(GangBackend.SOFT)
    if any(task.share for task in job.spec.tasks):
        return BackendChoice(GangBackend.SOFT, "the scheduler's PodGroup finds no place for tasks that share nodes")
    for key in ("schedulerName", "priorityClassName"):
        if len({pod["spec"].get(key) for pod in templates}) > 1:
            return BackendChoice(GangBackend.SOFT, f"the scheduler's PodGroup wants one {key} for all tasks")
    return BackendChoice(best)


def render_group(backend: GangBackend, token: str, count: int, template: Document) -> tuple[Document, ...]:
    """The objects beside the pods: one group for all of them, where the scheduler has an object for that."""
    scheduler = GANG_SCHEDULERS[backend]
    if scheduler.served is None:
        return ()
    return (
        {
            "apiVersion": f"{scheduler.served.group}/{scheduler.served.version}",
            "kind": scheduler.served.kind,
            "metadata": {"name": name_anchor(token), "labels": label_launch(token)},
            "spec": scheduler.specify(count, template),
        },
    )


def mark_pod(backend: GangBackend, token: str, count: int, queue: str) -> PodMarks:
    """What makes a pod of the first attempt a part of its group."""
    return GANG_SCHEDULERS[backend].mark(name_anchor(token), count, queue)


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
