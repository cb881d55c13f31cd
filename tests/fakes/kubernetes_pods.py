"""What the nodes of the fake cluster do to pods: bind, start, end and give them up."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tests.fakes.kubernetes_objects import Document, Key, Objects, merge, to_rfc3339


class Pods:
    """The pods of a fake cluster, as a test moves them."""

    def __init__(self, objects: Objects) -> None:
        self.objects = objects

    def get(self, name: str, namespace: str = "default") -> Document:
        """A pod as it is; raises Refused."""
        return self.objects.get(Key("", "pods", namespace, name))

    def set_status(self, name: str, status: Mapping[str, Any], namespace: str = "default") -> Document:
        """Merge into a pod's status."""
        key = Key("", "pods", namespace, name)
        return self.objects.replace(key, lambda pod: {**pod, "status": merge(pod["status"], dict(status))}, check=False)

    def bind(self, name: str, node: str = "node-1", address: str = "10.0.0.1", namespace: str = "default") -> None:
        """Give a pod its node and address."""
        key = Key("", "pods", namespace, name)
        scheduled = {"type": "PodScheduled", "status": "True"}
        # Nobody changes or removes it in between.
        with self.objects.changed:
            self.objects.replace(key, lambda pod: merge(pod, {"spec": {"nodeName": node}}), check=False)
            self.set_status(name, {"podIP": address, "conditions": [scheduled]}, namespace)

    def run(self, name: str, namespace: str = "default") -> None:
        """Start a bound pod's `main`; what was to run before it is over."""
        started = {"running": {"startedAt": to_rfc3339(self.objects.clock())}}
        over = {"terminated": {"exitCode": 0, "reason": "Completed"}}
        before = self.get(name, namespace)["spec"].get("initContainers") or []
        status: Document = {
            "phase": "Running",
            "startTime": to_rfc3339(self.objects.clock()),
            "containerStatuses": [{"name": "main", "ready": True, "state": started}],
            "initContainerStatuses": [{"name": one["name"], "state": over} for one in before],
            "conditions": [{"type": kind, "status": "True"} for kind in ("PodScheduled", "Ready")],
        }
        self.set_status(name, status, namespace)

    def finish(self, name: str, code: int = 0, reason: str = "", message: str = "", namespace: str = "default") -> None:
        """End a pod's `main`; a pod that was deleted goes, but for its finalizers."""
        at = to_rfc3339(self.objects.clock())
        states = self.get(name, namespace)["status"].get("containerStatuses") or [{}]
        began = ((states[0].get("state") or {}).get("running") or {}).get("startedAt", at)
        ended = {"exitCode": code, "reason": reason or ("Error" if code else "Completed"), "message": message}
        state = {"terminated": {**ended, "startedAt": began, "finishedAt": at}}
        phase = "Failed" if code else "Succeeded"
        status = {"phase": phase, "containerStatuses": [{"name": "main", "ready": False, "state": state}]}
        # Who sees its end may remove it at once.
        with self.objects.changed:
            pod = self.set_status(name, status, namespace)
            if pod["metadata"].get("deletionTimestamp"):
                self.gone(name, namespace)

    def gone(self, name: str, namespace: str = "default") -> None:
        """A node is done with a pod: it is deleted without grace, and stays for its finalizers only."""
        key = Key("", "pods", namespace, name)
        self.objects.delete(key, {"gracePeriodSeconds": 0})
