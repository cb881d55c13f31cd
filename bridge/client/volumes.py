"""Volumes that outlive jobs: `Client().volumes`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client


class VolumeCalls:
    """What can be asked of volumes."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def apply(self, name: str = "", **options: str) -> dict[str, Any]:
        """Have a volume be there: {volume, done, notes}; `done` is `made`, `grown` or `unchanged`.

        `options` are size, storage_class, access_mode, type, infra, cluster, and the text of a volume file, with file.
        """
        return self._client._post("/v1/volumes/apply", {"name": name, **options})

    def list(self, cluster: str = "") -> dict[str, Any]:
        """The volumes of a cluster, or of all: {volumes: [{name, cluster, kind, size, storage_class, access, status,
        message, used_by}], notes}."""
        return self._client._post("/v1/volumes/list", {"cluster": cluster})

    def delete(self, name: str, cluster: str = "") -> str:
        """Remove a volume with all that is in it; the cluster that had it."""
        return str(self._client._post("/v1/volumes/delete", {"name": name, "cluster": cluster})["cluster"])
