"""Whether a cluster has sidecar containers, by which the data of pods is sent after the end of their program."""

from __future__ import annotations

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.api.discovery import read_version
from overspan.adapters.kubernetes.api.refusals import Obstacle
from overspan.bridge.model.job import Job

FIRST = (1, 29)
"""The first version in which init containers that are restarted always are on without being asked for."""


class SidecarCheck:
    """Looks at the cluster's version, until one has them."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._present = False

    async def find_obstacle(self, job: Job) -> Obstacle | None:
        """Why a job cannot run there: an older API server drops what makes a container a sidecar.

        Raises Unreachable.
        """
        if self._present or not any(task.flushes for task in job.spec.tasks):
            return None
        version = read_version((await self._connection.call("GET", "/version")).document)
        self._present = version is None or version >= FIRST
        if self._present or version is None:
            return None
        told, first = (".".join(map(str, numbers)) for numbers in (version, FIRST))
        return Obstacle(
            f"Kubernetes {told} has no sidecar containers, by which MOUNT_CACHED data is sent: {first} has them",
            "mount it with `mode: COPY`, or use another cluster",
        )
