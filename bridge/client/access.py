"""The client's part for ways into a cluster: logins, shells, and jobs that somebody gave to the cluster itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from overspan.bridge.client.transport import Transport, quote_part


class AccessCalls(Transport):
    """What a client can ask about clusters; raises as every method of the client does."""

    def login(self, cluster: str) -> dict[str, Any]:
        """What opens the way to a cluster: message, words of a command for the terminal, words of one that checks."""
        return self._post(f"/v1/clusters/{quote_part(cluster)}/login", {})

    def shell(
        self, ref: str, task: str = "", node: int = 0, command: Sequence[str] = (), *, terminal: bool = True
    ) -> dict[str, Any]:
        """What to run for a shell, or a command, at a member of a job: words, environment on top of one's own, place.

        Raises Conflict where nothing can be entered, NotFound, InvalidRequest.
        """
        body = {"task": task, "node": node, "command": list(command), "terminal": terminal}
        return self._post(f"/v1/jobs/{quote_part(ref)}/shell", body)

    def import_job(self, cluster: str, native: str) -> dict[str, Any]:
        """Watch a job that the cluster has: id, name, cluster, state. Raises Conflict when it is watched already."""
        lost = "whether the job was imported is not known; look with `span squeue`"
        return self._post(f"/v1/clusters/{quote_part(cluster)}/import", {"native": native}, lost=lost)
