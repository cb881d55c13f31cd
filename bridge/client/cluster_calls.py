"""What clusters have beside jobs: `Client().cache`, `.volumes`, and `.reach`, the ways between two of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from overspan.bridge.client.transport import quote_part

if TYPE_CHECKING:
    from overspan.bridge.client.client import Client


class CacheCalls:
    """What can be asked of the caches."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, cluster: str = "") -> dict[str, Any]:
        """What a cluster keeps, or all do: {caches: [{cluster, path, limit, contents: [{name, size, used_at, links,
        whole}]}], notes}."""
        return self._client._post("/v1/cache/list", {"cluster": cluster})

    def clean(self, cluster: str = "", seconds: float = 0.0) -> dict[str, Any]:
        """Remove what no job uses, nor has for so long: {caches: [{cluster, removed, size, kept}], notes}."""
        return self._client._post("/v1/cache/clean", {"cluster": cluster, "seconds": seconds})


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


class ReachCalls:
    """What can be asked of the ways between two clusters."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def prepare(self, clusters: Sequence[str], **options: Any) -> dict[str, Any]:
        """The job file of a trial: {text, has_host_network}; what was known of its ways is forgotten.

        `options` are ports, image (of pods, with python3), host_network, and the seconds that the trial may wait.
        """
        return self._client._post("/v1/reach/trial", {"clusters": list(clusters), **options})

    def conclude(self, ref: str) -> dict[str, Any]:
        """What a trial found: {findings: [{source, target, host_network, port, works, detail}], gaps: [sentence]}."""
        return self._client._post(f"/v1/jobs/{quote_part(ref)}/reach", {})
