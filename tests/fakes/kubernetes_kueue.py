"""A small Kueue over the fake API server: it gates plain pods, admits groups as one by a quota, and lets go of pods.

As much of it as pods see. Facts: Kueue's pod webhook (gate, finalizer, managed label) and its pod controller
(pkg/controller/jobs/pod: a Workload named after the group when all members are there; Finished; finalizers).
"""

from __future__ import annotations

import contextlib
import functools
from typing import Any

from tests.fakes.kubernetes_api import KubernetesApi
from tests.fakes.kubernetes_objects import Document, Key, Refused, merge

GROUP = "kueue.x-k8s.io"
MANAGED = f"{GROUP}/managed"
"""The label and the finalizer of its pods."""
GATE = f"{GROUP}/admission"
_NAME, _COUNT, _RETRIABLE = f"{GROUP}/pod-group-name", f"{GROUP}/pod-group-total-count", f"{GROUP}/retriable-in-group"


class Kueue:
    """One ClusterQueue whose quota is a number of pods; `work` does what is due."""

    def __init__(self, api: KubernetesApi, queue: str, quota: int) -> None:
        self.api, self.quota = api, quota
        api.groups[f"{GROUP}/v1beta1"] = ("localqueues", "workloads")
        api.objects.create(Key(GROUP, "localqueues", "default"), {"metadata": {"name": queue}})
        create = api.objects.create

        def admit(key: Key, document: Document) -> Document:
            return create(key, _gate(document) if _is_queued(key, document) else document)

        api.objects.create = admit  # type: ignore[method-assign]

    def work(self) -> None:
        """Compose workloads, admit what fits, and let go of what is over."""
        groups: dict[str, list[Document]] = {}
        for pod in self._pods():
            groups.setdefault(pod["metadata"]["labels"].get(_NAME, ""), []).append(pod)
        for pod in groups.pop("", []):
            if pod["metadata"].get("deletionTimestamp") or _phase(pod) in ("Succeeded", "Failed"):
                self._finalize([pod])
        for name, pods in groups.items():
            self._work_group(name, pods)
        for workload in self.api.objects.select(Key(GROUP, "workloads", "default"), lambda _: True)[0]:
            if workload["metadata"]["name"] not in groups:
                # Its owners, the pods, are gone.
                self._drop(workload["metadata"]["name"])

    def _work_group(self, name: str, pods: list[Document]) -> None:
        workload = self._workload(name)
        total = int(pods[0]["metadata"]["annotations"][_COUNT])
        active = [pod for pod in pods if not _is_inactive(pod)]
        for pod in sorted(active, key=lambda pod: (_is_gated(pod), pod["metadata"]["creationTimestamp"]))[total:]:
            # More than the group has members.
            self._finalize([pod])
            self.api.objects.delete(_key(pod), {})
        if _is_finished(pods, total):
            self._finalize(pods)
        elif workload is None and len(active) == total:
            key = Key(GROUP, "workloads", "default")
            self.api.objects.create(key, {"metadata": {"name": name, "finalizers": [f"{GROUP}/resource-in-use"]}})
        elif workload is not None and workload["metadata"].get("deletionTimestamp"):
            for pod in pods:
                self.api.objects.delete(_key(pod), {})
            self._finalize([self.api.objects.get(_key(pod)) for pod in pods])
            self._drop(name)
        if workload is not None and len(active) == total and self._used() + total <= self.quota:
            for pod in active:
                self._ungate(pod)

    # --- inside ---

    def _pods(self) -> list[Document]:
        managed = self.api.objects.select(Key("", "pods", "default"), lambda pod: MANAGED in _labels(pod))[0]
        return list(managed)

    def _drop(self, name: str) -> None:
        key = Key(GROUP, "workloads", "default", name)
        self.api.objects.delete(key, {})
        self.api.objects.replace(key, lambda one: merge(one, {"metadata": {"finalizers": None}}), check=False)

    def _used(self) -> int:
        return sum(1 for pod in self._pods() if not _is_gated(pod) and _phase(pod) in ("Pending", "Running"))

    def _workload(self, name: str) -> Document | None:
        with contextlib.suppress(Refused):
            return self.api.objects.get(Key(GROUP, "workloads", "default", name))
        return None

    def _ungate(self, pod: Document) -> None:
        def change(now: Document) -> Document:
            status = {**now["status"], "conditions": []}
            return {**now, "spec": {**now["spec"], "schedulingGates": []}, "status": status}

        if _is_gated(pod):
            self.api.objects.replace(_key(pod), change, check=False)

    def _finalize(self, pods: list[Document]) -> None:
        for pod in pods:
            kept = [one for one in pod["metadata"].get("finalizers") or [] if one != MANAGED]
            change: Document = {"metadata": {"finalizers": kept or None}}
            self.api.objects.replace(_key(pod), functools.partial(_merge, change), check=False)


def _merge(change: Document, now: Document) -> Document:
    merged: Document = merge(now, change)
    return merged


def _gate(document: Document) -> Document:
    metadata = document["metadata"]
    more: dict[str, Any] = {
        "metadata": {
            "labels": {MANAGED: "true"},
            "finalizers": [*metadata.get("finalizers", []), MANAGED],
        },
        "spec": {"schedulingGates": [{"name": GATE}]},
    }
    return _merge(more, document)


def _is_queued(key: Key, document: Document) -> bool:
    return key.resource == "pods" and f"{GROUP}/queue-name" in _labels(document)


def _is_finished(pods: list[Document], total: int) -> bool:
    succeeded = sum(1 for pod in pods if _phase(pod) == "Succeeded")
    over = all(_phase(pod) in ("Succeeded", "Failed") for pod in pods)
    closed = any(pod["metadata"].get("annotations", {}).get(_RETRIABLE) == "false" for pod in pods)
    return succeeded == total or (over and closed)


def _is_inactive(pod: Document) -> bool:
    unbound = bool(pod["metadata"].get("deletionTimestamp")) and not pod["spec"].get("nodeName")
    return unbound or _phase(pod) == "Failed"


def _is_gated(pod: Document) -> bool:
    return bool(pod["spec"].get("schedulingGates"))


def _phase(pod: Document) -> str:
    return str(pod["status"].get("phase"))


def _labels(document: Document) -> dict[str, str]:
    return document["metadata"].get("labels") or {}


def _key(pod: Document) -> Key:
    return Key("", "pods", "default", pod["metadata"]["name"])
