"""What clusters keep of object stores: `Client().cache`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

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
