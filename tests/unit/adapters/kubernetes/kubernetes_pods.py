"""Documents of pods as a kubelet leaves them, and records of them."""

from __future__ import annotations

from typing import Any

from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod

Document = dict[str, Any]
BEGUN = "2026-11-21T22:00:00Z"
ENDED = "2026-11-21T22:05:00Z"
DELETED = "2026-11-21T22:04:30Z"


def ended(code: int, reason: str = "", message: str = "") -> Document:
    """The state of a container that has ended."""
    word = reason or ("Error" if code else "Completed")
    return {
        "terminated": {"exitCode": code, "reason": word, "message": message, "startedAt": BEGUN, "finishedAt": ENDED}
    }


def waiting(reason: str, message: str = "") -> Document:
    """The state of a container that waits."""
    return {"waiting": {"reason": reason, "message": message}}


RUNNING: Document = {"running": {"startedAt": BEGUN}}


def condition(kind: str, status: str = "True", reason: str = "", message: str = "") -> Document:
    """One condition of a pod."""
    return {"type": kind, "status": status, "reason": reason, "message": message}


def make_document(
    main: Document | None = None, before: Document | None = None, deleted: bool = False, **status: Any
) -> Document:
    """A bound pod of task trainer, index 1, attempt 2; `status` is merged in."""
    metadata: Document = {
        "name": "rlhf-trainer-1-a2",
        "uid": "u-1",
        "namespace": "training",
        "creationTimestamp": BEGUN,
        "labels": {"overspan.io/launch": "abc-42-0", "overspan.io/member": "abc-42-0"},
        "annotations": {
            "overspan.io/task": "trainer",
            "overspan.io/index": "1",
            "overspan.io/attempt": "2",
            "overspan.io/run": "0",
            "overspan.io/go": "1795300000.000000",
        },
        "managedFields": [{"manager": "kubelet"}],
    }
    if deleted:
        metadata["deletionTimestamp"] = DELETED
    spec: Document = {"nodeName": "node-1", "containers": [{"name": "main"}]}
    found: Document = {"phase": "Pending", "podIP": "10.0.0.7", "conditions": [condition("PodScheduled")]}
    if main is not None:
        found["containerStatuses"] = [{"name": "helper", "state": RUNNING}, {"name": "main", "state": main}]
    if before is not None:
        spec["initContainers"] = [{"name": "unpack"}]
        found["initContainerStatuses"] = [{"name": "unpack", "state": before}]
    return {"metadata": metadata, "spec": spec, "status": found | status}


def make_record(
    main: Document | None = None, before: Document | None = None, deleted: bool = False, **status: Any
) -> PodRecord:
    """The record of the same."""
    return read_pod(make_document(main, before, deleted, **status))
