"""The rescue of data that jobs could not send: it is in their run directories, and goes from the login node."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.files.application import InstalledApplication, name_archive
from overspan.adapters.slurm.groups.handles import is_group_handle, parse_group
from overspan.adapters.slurm.rendering.renderer import DEFAULT_ROOT, resolve_root
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.transport import Transport
from overspan.adapters.store_files import list_stores, pack_stores
from overspan.bridge.model.errors import Conflict
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.rescue import RescuedData, read_answer

RESCUE_SECONDS = 3600.0
"""The longest time of one rescue; what was sent until then is not sent again."""


class SlurmRescue:
    """Sends what is in the run directory of a job that has ended. `transport` has no care but this."""

    def __init__(
        self, queries: Queries, transport: Transport, settings: Settings, root: str, stores: Mapping[str, StoreAccess]
    ) -> None:
        self._queries = queries
        self._transport = transport
        self._settings = settings
        self._root = root
        self._stores = stores
        self._library = InstalledApplication(queries.transport)

    async def send(self, job: Job, handle: str) -> RescuedData | None:
        """Send it; None where nothing is left. Raises ObjectStoreError, OSError and OverspanError."""
        if not is_group_handle(handle):
            return None
        root = resolve_root(self._root or DEFAULT_ROOT, (await self._queries.site()).home)
        await self._library.bring(root)
        words = (self._settings.python, "-I", "-S", f"{root}/lib/{name_archive()}", "rescue")
        folder = parse_group(handle).folder
        stores = pack_stores(list_stores(job), self._stores)
        done = await self._transport.run((*words, folder, str(job.id)), stdin=stores, timeout=RESCUE_SECONDS)
        answer = _read(done.text)
        if answer is _NONE:
            raise Conflict(
                f"the login node could not send what job {job.id} has left in {folder}: "
                f"{done.words.strip() or f'exit code {done.rc}'}"
            )
        return read_answer(answer)


_NONE: Any = object()


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return _NONE
