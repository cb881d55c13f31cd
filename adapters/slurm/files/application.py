"""Installs the runtime application on the cluster: ROOT/lib/supervisor-HASH.pyz, once for each version."""

from __future__ import annotations

import asyncio
import functools
import tempfile
from pathlib import Path

from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import NotFound
from overspan.bridge.runtime.zip_application import build_archive, hash_sources, read_sources


@functools.cache
def name_archive() -> str:
    """The file name of this version's application."""
    return f"supervisor-{hash_sources(read_sources())}.pyz"


def build() -> bytes:
    """The bytes of this version's application."""
    with tempfile.TemporaryDirectory() as folder:
        return Path(build_archive(folder)).read_bytes()


class InstalledApplication:
    """Uploads the application once. The upload ends with a rename, so a file of this name is always complete."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport
        self._there: set[str] = set()
        self._lock = asyncio.Lock()

    async def bring(self, root: str) -> None:
        """Upload the application unless it is there. Raises OverspanError when it cannot be written."""
        path = f"{root}/lib/{name_archive()}"
        async with self._lock:
            if path in self._there:
                return
            try:
                await self._transport.read(path, 0, 1)
            except NotFound:
                await self._transport.write(path, await asyncio.to_thread(build))
            self._there.add(path)
