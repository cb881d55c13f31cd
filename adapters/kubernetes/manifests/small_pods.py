"""Small pods of Overspan's own, which go where jobs go: for a trial, and for looking at a volume. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.manifests.names import MANAGED_BY, MANAGER
from overspan.adapters.kubernetes.manifests.overlay import lay_over
from overspan.adapters.kubernetes.manifests.scripts import escape
from overspan.adapters.kubernetes.manifests.security import restrict_pod
from overspan.adapters.kubernetes.observation.records import MAIN
from overspan.adapters.kubernetes.settings import RESTRICTED, Settings

Document = dict[str, Any]


class SmallPod(NamedTuple):
    """What such a pod runs, how many seconds it lives at most, and what else it has."""

    words: Sequence[str]
    seconds: int
    labels: Mapping[str, str]
    image: str = ""
    """Empty: the cluster's."""
    hostname: str = ""
    subdomain: str = ""
    volumes: Sequence[Mapping[str, Any]] = ()
    mounts: Sequence[Mapping[str, Any]] = ()
    node: str = ""
    """The node on which it has to be."""
    memory: str = "128Mi"
    """The most that it may have."""


def render_small_pod(name: str, settings: Settings, pod: SmallPod) -> Document:
    """Its manifest, with the cluster's own overlay. Raises InvalidRequest for a wrong one."""
    small, large = {"cpu": "10m", "memory": "16Mi"}, {"cpu": "1", "memory": pod.memory}
    container: Document = {
        "name": MAIN,
        "image": pod.image or settings.image or "image",
        "command": [escape(word) for word in pod.words],
        "resources": {"requests": small, "limits": large},
        "volumeMounts": [dict(mount) for mount in pod.mounts],
    }
    spec: Document = {
        "hostname": pod.hostname,
        "subdomain": pod.subdomain,
        "restartPolicy": "Never",
        "enableServiceLinks": False,
        "automountServiceAccountToken": False,
        "activeDeadlineSeconds": pod.seconds,
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": dict(settings.node_selector),
        "tolerations": [dict(one) for one in settings.tolerations],
        "imagePullSecrets": [{"name": one} for one in settings.image_pull_secrets],
        "serviceAccountName": settings.service_account,
        "schedulerName": settings.scheduler,
        "affinity": _bind(pod.node),
        "volumes": [dict(volume) for volume in pod.volumes],
        "containers": [{key: value for key, value in container.items() if value}],
    }
    spec = {key: value for key, value in spec.items() if value not in ("", [], {})}
    labels = {**settings.labels, MANAGED_BY: MANAGER, **pod.labels}
    metadata = {"name": name, "labels": labels, "annotations": dict(settings.annotations)}
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    document = lay_over(document, settings.kubernetes, "kubernetes of the cluster")
    return restrict_pod(document) if settings.security == RESTRICTED else document


def _bind(node: str) -> Document:
    """The affinity of a pod that can be on one node alone; it passes the scheduler, which counts what it takes."""
    if not node:
        return {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    return {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": [field]}]}
        }
    }
