"""Parts of a pod manifest that users and sites lay over the one that is rendered (`kubernetes:`). Pure.

Mappings are merged key by key; null takes a key away. Lists whose entries have a name (containers, volumes, env...) are
merged by it, an entry without a name under `containers` is the task's; requirements are added; other lists replaced.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from overspan.adapters.kubernetes.manifests.names import MANAGED_BY
from overspan.adapters.kubernetes.manifests.scripts import BASE
from overspan.adapters.kubernetes.manifests.volumes import VOLUME_PREFIX
from overspan.adapters.kubernetes.observation.records import DOMAIN, MAIN, PORT_CHECK
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec

Document = dict[str, Any]

_TOP = ("metadata", "spec", "apiVersion", "kind", "host_network")
_SPEC = {
    "restartPolicy": "the budgets of the task say when it starts again",
    "hostname": "it is the member's name",
    "subdomain": "it is the group's name",
    "setHostnameAsFQDN": "it is the member's name",
    "hostnameOverride": "it is the member's name",
    "activeDeadlineSeconds": "write `time`",
    "terminationGracePeriodSeconds": "write `grace_period`",
    "enableServiceLinks": "it stays off",
    "schedulingGroup": "the group starts as one by itself; see `start`",
    "shareProcessNamespace": "signals go to the first process of a container",
    "hostPID": "signals go to all processes that the container sees",
    "ephemeralContainers": "they belong to running pods",
}
"""Fields of a pod's spec that are Overspan's own, and what to do instead."""
_CONTAINER = {
    "command": "write `run`",
    "args": "write `run`",
    "terminationMessagePath": "Overspan reads it",
    "stdin": "a task has no input",
    "tty": "a task has no terminal",
}
_MERGE_KEYS = {
    "containers": "name",
    "initContainers": "name",
    "volumes": "name",
    "env": "name",
    "imagePullSecrets": "name",
    "volumeMounts": "mountPath",
    "volumeDevices": "devicePath",
    "ports": "containerPort",
}
"""The lists that are merged entry by entry, each with its merge key, as the API has them."""
_ADDED = frozenset(
    {
        "tolerations",
        "topologySpreadConstraints",
        "hostAliases",
        "envFrom",
        "readinessGates",
        "schedulingGates",
        "resourceClaims",
        "requiredDuringSchedulingIgnoredDuringExecution",
        "preferredDuringSchedulingIgnoredDuringExecution",
    }
)
"""Lists whose entries are added."""
_QUEUE_GROUP = "kueue.x-k8s.io/pod-group-"


def lay_over(pod: Document, overlay: Mapping[str, Any], where: str) -> Document:
    """The pod with an overlay on it; neither is changed. `where` names the overlay in messages.

    Raises InvalidRequest for fields that are Overspan's own and for what does not fit a pod.
    """
    check_overlay(overlay, where)
    below = {key: value for key, value in overlay.items() if key in ("metadata", "spec")}
    if "host_network" in overlay:
        below["spec"] = {**below.get("spec", {}), "hostNetwork": overlay["host_network"] or None}
    merged = _merge(pod, below, where)
    if merged["spec"].get("hostNetwork") and "dnsPolicy" not in merged["spec"]:
        # Such a pod would ask the node's resolver, which knows no member (API, PodSpec.dnsPolicy).
        merged["spec"]["dnsPolicy"] = "ClusterFirstWithHostNet"
    return merged


def has_host_network(job: Job, settings: Settings, task: TaskSpec) -> bool:
    """Whether a task's pods have their nodes' addresses. Raises as `lay_over`."""
    return bool(lay_overlays({"metadata": {}, "spec": {}}, job, settings, task)["spec"].get("hostNetwork"))


def lay_overlays(pod: Document, job: Job, settings: Settings, task: TaskSpec) -> Document:
    """The pod with the site's part first, then the job's, then the task's. Raises as `lay_over`."""
    layers: tuple[tuple[str, Mapping[str, Any]], ...] = (
        (f"clusters.{settings.name}", {"host_network": True} if settings.host_network else {}),
        (f"clusters.{settings.name}.kubernetes", settings.kubernetes),
        ("kubernetes", job.spec.native.get("kubernetes", {})),
        (f"{task.name}: kubernetes", task.native.get("kubernetes", {})),
    )
    for where, overlay in layers:
        pod = lay_over(pod, overlay, where) if overlay else pod
    return pod


def check_overlay(overlay: Mapping[str, Any], where: str) -> None:
    """Raise InvalidRequest for a field that is reserved, with what to do instead."""
    for key, value in overlay.items():
        if key not in _TOP or (key in ("metadata", "spec") and not isinstance(value, Mapping)):
            raise InvalidRequest(
                f"{where}: {key!r} is no part of a pod manifest", remedy="write mappings `metadata` and `spec`"
            )
        if key == "host_network" and not isinstance(value, bool):
            raise InvalidRequest(f"{where}: host_network is {value!r}", remedy="write true or false")
        if key in ("apiVersion", "kind") and value not in ("v1", "Pod"):
            raise InvalidRequest(f"{where}: {value!r} is no pod", remedy="write a part of a v1 Pod")
    _check_metadata(overlay.get("metadata") or {}, where)
    spec = overlay.get("spec") or {}
    _refuse(spec, _SPEC, f"{where}: spec")
    for kind in ("containers", "initContainers"):
        for item in _list(spec.get(kind)):
            _check_container(item, kind, where)
    for item in _list(spec.get("volumes")):
        if str(item.get("name", "")).startswith(VOLUME_PREFIX):
            raise _reserved(f"{where}: the volume {item['name']}", "give it another name")


def _check_metadata(metadata: Mapping[str, Any], where: str) -> None:
    for key in metadata:
        if key not in ("labels", "annotations"):
            raise _reserved(f"{where}: metadata.{key}", "write labels and annotations")
        for name in metadata[key] or {}:
            if str(name).startswith((DOMAIN, _QUEUE_GROUP)) or name == MANAGED_BY:
                raise _reserved(f"{where}: metadata.{key}.{name}", "use a name of your own domain")


def _check_container(item: Mapping[str, Any], kind: str, where: str) -> None:
    name = item.get("name", MAIN if kind == "containers" else "")
    if kind == "initContainers" and name in ("unpack", PORT_CHECK, ""):
        raise _reserved(f"{where}: the init container {name or 'without a name'}", "give it a name of its own")
    if kind == "containers" and name == MAIN:
        _refuse(item, _CONTAINER, f"{where}: spec.containers.{MAIN}")
        for variable in _list(item.get("env")):
            if str(variable.get("name", "")).startswith("OVERSPAN_"):
                raise _reserved(f"{where}: the variable {variable['name']}", "use another name")
    for mount in _list(item.get("volumeMounts")):
        path = str(mount.get("mountPath", ""))
        if path == BASE or path.startswith(f"{BASE}/"):
            raise _reserved(f"{where}: the folder {path}", "mount it elsewhere")


def _refuse(table: Mapping[str, Any], reserved: Mapping[str, str], where: str) -> None:
    for key in table:
        if key in reserved:
            raise _reserved(f"{where}.{key}", reserved[key])


def _reserved(what: str, remedy: str) -> InvalidRequest:
    return InvalidRequest(f"{what} is reserved: Overspan sets it itself", remedy=remedy)


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, (list, tuple)) else []


def _merge(below: Mapping[str, Any], above: Mapping[str, Any], where: str) -> Document:
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        place = f"{where}.{key}"
        if value is None:
            merged.pop(key, None)
        elif old is None:
            merged[key] = _name_first(key, value)
        elif isinstance(old, Mapping) != isinstance(value, Mapping) or isinstance(old, (list, tuple)) != isinstance(
            value, (list, tuple)
        ):
            raise InvalidRequest(f"{place} does not fit a pod", remedy="write it as the pod's API has it")
        elif isinstance(old, Mapping):
            merged[key] = _merge(old, value, place)
        elif isinstance(old, (list, tuple)):
            merged[key] = _merge_lists(key, old, value, place)
        else:
            merged[key] = value
    return merged


def _merge_lists(key: str, old: Sequence[Any], new: Sequence[Any], where: str) -> list[Any]:
    if key in _MERGE_KEYS:
        return _merge_by(_MERGE_KEYS[key], old, _name_first(key, new), where)
    if key == "nodeSelectorTerms":
        # Terms are alternatives (API, NodeSelector): what was asked for has to hold in each.
        return [_join_terms(first, second) for first in old for second in new]
    if key in _ADDED:
        return [*old, *(item for item in new if item not in old)]
    return list(new)


def _join_terms(first: Mapping[str, Any], second: Mapping[str, Any]) -> Document:
    kinds = [kind for kind in ("matchExpressions", "matchFields") if first.get(kind) or second.get(kind)]
    return {kind: [*first.get(kind, ()), *second.get(kind, ())] for kind in kinds}


def _merge_by(name: str, old: Sequence[Any], new: Sequence[Any], where: str) -> list[Any]:
    if not all(isinstance(item, Mapping) and name in item for item in new):
        raise InvalidRequest(f"{where}: each entry needs {name!r}", remedy="write it as the pod's API has it")
    given = {item[name]: item for item in new}
    merged = [_merge(item, given.pop(item[name]), where) if item[name] in given else item for item in old]
    return [*merged, *given.values()]


def _name_first(key: str, value: Any) -> Any:
    """A container without a name is the task's own, as in SkyPilot's pod_config."""
    if key != "containers" or not isinstance(value, (list, tuple)):
        return value
    return [{"name": MAIN, **item} if isinstance(item, Mapping) else item for item in value]
