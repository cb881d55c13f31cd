"""The client's part for ways into a cluster: logins, and jobs that somebody gave to the cluster itself."""

from __future__ import annotations

from typing import Any

from overspan.bridge.client.transport import Transport, quote_part


class AccessCalls(Transport):
    """What a client can ask about clusters; raises as every method of the client does."""

    def login(self, cluster: str) -> dict[str, Any]:
        """What opens the way to a cluster: message, words of a command for the terminal, words of one that checks."""
        return self._post(f"/v1/clusters/{quote_part(cluster)}/login", {})

    def import_job(self, cluster: str, native: str) -> dict[str, Any]:
        """Watch a job that the cluster has: id, name, cluster, state. Raises Conflict when it is watched already."""
        lost = "whether the job was imported is not known; look with `span squeue`"
        return self._post(f"/v1/clusters/{quote_part(cluster)}/import", {"native": native}, lost=lost)
