"""Pods that are deleted on nodes that do not answer: their grace has the time of their data in it, which never comes.

Without data a pod that does not end in its grace says the same by itself (projection.is_stuck).
"""

from __future__ import annotations

from collections.abc import Iterable

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.projection import STUCK_SECONDS
from overspan.adapters.kubernetes.observation.records import PodRecord


def list_doubtful(watched: WatchedLaunch, pods: Iterable[PodRecord], now: float) -> list[PodRecord]:
    """The pods of a launch whose program should have ended long ago, were it not for the time of their data."""
    graces = {task.name: task.grace for task in watched.summary.tasks if task.flush}
    return [
        pod
        for pod in pods
        if pod.asked_at is not None
        and pod.phase not in ("Succeeded", "Failed")
        and pod.node
        and now > pod.asked_at + graces.get(pod.task, float("inf")) + STUCK_SECONDS
    ]


async def is_lost(connection: Connection, node: str) -> bool:
    """Whether a node does not answer, or is gone; False where this login may not ask. Raises Unreachable."""
    answer = await connection.call("GET", f"/api/v1/nodes/{node}")
    if answer.status == 404:
        return True
    conditions = (answer.document.get("status") or {}).get("conditions") or () if answer.works else ()
    return any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in conditions)
