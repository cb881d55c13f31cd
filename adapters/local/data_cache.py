"""The cache of this machine: what jobs only read of object stores, below the cluster's root."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

from overspan.adapters.local.settings import Settings
from overspan.adapters.settings import to_bytes
from overspan.bridge.model.errors import Conflict
from overspan.bridge.runtime.data.cache import CacheListing, CleanedCache, ContentCache, open_cache

T = TypeVar("T")


class LocalCache:
    """The usual one of the root (`abilities.DataCache`)."""

    def __init__(self, root: str, settings: Settings) -> None:
        self._cache = ContentCache(open_cache(root).path, to_bytes(settings.data_cache_size))

    async def list_cache(self) -> CacheListing:
        """What it has."""
        return await _look(self._cache.describe)

    async def clean_cache(self, seconds: float) -> CleanedCache:
        """Remove contents that no job uses or has used for so many seconds."""
        return await _look(lambda: self._cache.clean(seconds))


async def _look(call: Callable[[], T]) -> T:
    try:
        return await asyncio.to_thread(call)
    except OSError as error:
        raise Conflict(f"the cache cannot be looked at: {error}") from None
