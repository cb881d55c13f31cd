"""The cache of a Slurm cluster: a folder that all nodes see, told and cleaned by the application on the login node."""

from __future__ import annotations

import json
from typing import Any

from overspan.adapters.settings import to_bytes
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.files.application import InstalledApplication, name_archive
from overspan.adapters.slurm.rendering.renderer import DEFAULT_ROOT, resolve_root
from overspan.adapters.slurm.settings import Settings
from overspan.bridge.model.errors import Conflict, Unreachable
from overspan.bridge.runtime.data.cache import CachedContent, CacheListing, CleanedCache


class SlurmCache:
    """The cache that the settings name (`abilities.DataCache`)."""

    def __init__(self, queries: Queries, settings: Settings, root: str) -> None:
        self._queries = queries
        self._settings = settings
        self._root = root
        self._library = InstalledApplication(queries.transport)

    async def list_cache(self) -> CacheListing:
        """What it has."""
        path, limit, contents = await self._run("ls", 0)
        return CacheListing(str(path), int(limit), tuple(CachedContent(*content) for content in contents))

    async def clean_cache(self, seconds: float) -> CleanedCache:
        """Remove contents that no job uses or has used for so many seconds."""
        return CleanedCache(**await self._run("clean", seconds))

    async def _run(self, verb: str, seconds: float) -> Any:
        """What the application answers. Raises Conflict and Unreachable."""
        root = resolve_root(self._root or DEFAULT_ROOT, (await self._queries.site()).home)
        await self._library.bring(root)
        program = (self._settings.python, "-I", "-S", f"{root}/lib/{name_archive()}", "cache")
        words = (*program, verb, self._settings.data_cache, _word_limit(self._settings), str(seconds))
        done = await self._queries.transport.run(words, timeout=self._queries.timeout)
        if done.rc:
            raise Conflict(
                f"the login node could not look at the cache: {done.words.strip() or f'exit code {done.rc}'}"
            )
        try:
            return json.loads(done.text)
        except ValueError:
            raise Unreachable("the login node tells of the cache what is no JSON") from None


def _word_limit(settings: Settings) -> str:
    limit = to_bytes(settings.data_cache_size)
    return "" if limit is None else str(limit)
