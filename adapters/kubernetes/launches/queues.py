"""Kueue's bookkeeping when a group of pods is given up: Kueue keeps the pods until the group is finished.

Source: Kueue's documentation of plain pod groups, and pkg/controller/jobs/pod/pod_controller.go (0.19): a group is
finished when all of its pods have succeeded, or all have ended and one is marked as not to be retried. A group that
waits for its admission is closed by deleting its Workload, which has the group's name. Of pods that are more than the
group has members it deletes the youngest; one counts until it has failed, or is gone. The place of one that succeeded
is given to others, and never back (`reclaimablePods` of a Workload only grow).
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Any

from overspan.adapters.kubernetes.api.calls import Calls, finish_all
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.gang import KUEUE_GROUP, MEMBER_LABEL
from overspan.adapters.kubernetes.launches.pod_actions import CreatePods
from overspan.adapters.kubernetes.observation.records import PodRecord, read_pod

_log = logging.getLogger(__name__)

Document = Mapping[str, Any]
RETRIABLE = f"{KUEUE_GROUP}/retriable-in-group"


def find_group(pods: Iterable[Document]) -> str:
    """The name of the group that pods are to Kueue; '' where there is none to be closed."""
    open_pods = [pod for pod in pods if (pod.get("status") or {}).get("phase") != "Succeeded"]
    labels = [pod["metadata"].get("labels") or {} for pod in open_pods]
    return next((str(found[MEMBER_LABEL]) for found in labels if found.get(MEMBER_LABEL)), "")


def list_counted(pods: Iterable[PodRecord], action: CreatePods) -> list[PodRecord]:
    """Of the pods that are replaced, those that Kueue still counts (isPodRunnableOrSucceeded)."""
    return [
        pod
        for pod in pods
        if pod.task == action.task
        and pod.index in action.nodes
        and (pod.attempt, pod.run) < (action.attempt, action.run)
        if pod.phase != "Failed" and (pod.deleting_at is None or pod.node)
    ]


async def mark_given_up(calls: Calls, pods: Iterable[Document]) -> None:
    """Mark each pod of a group as not to be replaced."""
    await finish_all(calls.mark_pod(read_pod(pod), {RETRIABLE: "false"}, {}) for pod in pods)


async def delete_workload(connection: Connection, namespace: str, group: str) -> None:
    """Delete what Kueue keeps of a group; without the right to, the group's marks have to do."""
    served = await connection.call("GET", "/apis")
    versions = {one["name"]: one.get("preferredVersion") or {} for one in served.document.get("groups") or []}
    version = versions.get(KUEUE_GROUP, {}).get("version")
    if not version:
        return
    path = f"/apis/{KUEUE_GROUP}/{version}/namespaces/{namespace}/workloads/{group}"
    answer = await connection.call("DELETE", path, body={"kind": "DeleteOptions", "apiVersion": "v1"})
    if not answer.works and answer.status != 404:
        _log.warning("Kueue's workload %s cannot be deleted: %s", group, answer.message)
