"""`span cache`: lists and cleans the clusters' caches of contents that jobs only read from object stores."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

from overspan.adapters.abilities import DataCache
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.model.errors import Denied, InvalidRequest, OverspanError


class CacheAnswers(NamedTuple):
    """What clusters answer, each with its name as `cluster`, and what keeps others from an answer."""

    caches: list[dict[str, Any]]
    notes: list[str]


class DataCaches:
    """The caches of the clusters."""

    def __init__(self, clusters: Clusters, shared: bool) -> None:
        self._clusters = clusters
        self._shared = shared

    async def list(self, name: str = "") -> CacheAnswers:
        """What the cache of a cluster has, or those of all: {cluster, path, limit, contents}. Raises OverspanError."""

        async def ask(cache: DataCache) -> dict[str, Any]:
            found = await cache.list_cache()
            return {**found._asdict(), "contents": [content._asdict() for content in found.contents]}

        return await self._ask(name, ask)

    async def clean(self, name: str, seconds: float) -> CacheAnswers:
        """Remove contents that no job uses or has used for so long: {cluster, removed, size, kept}. Raises the same."""

        async def ask(cache: DataCache) -> dict[str, Any]:
            return (await cache.clean_cache(seconds))._asdict()

        return await self._ask(name, ask)

    async def _ask(self, name: str, ask: Callable[[DataCache], Awaitable[dict[str, Any]]]) -> CacheAnswers:
        if self._shared:
            raise Denied(
                "the shared daemon keeps no data of object stores",
                remedy="a daemon of your own does: put SPAN_SERVER= before the command",
            )
        if name:
            cache = self._clusters.get(name).adapter.traits.data_cache
            if cache is None:
                raise InvalidRequest(
                    f"the cluster {name} keeps no data of object stores between jobs",
                    remedy="a Slurm cluster does where its settings have a `data_cache`",
                )
            return CacheAnswers([{"cluster": name, **await ask(cache)}], [])
        found = CacheAnswers([], [])
        for cluster in self._clusters:
            try:
                cache = cluster.adapter.traits.data_cache
                if cache is not None:
                    found.caches.append({"cluster": cluster.name, **await ask(cache)})
            except OverspanError as error:
                found.notes.append(f"the cache of {cluster.name} does not answer: {error.line}")
        return found
