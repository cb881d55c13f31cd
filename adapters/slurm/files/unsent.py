"""What jobs could not send: it is in their run directories, where the application on the login node sees it."""

from __future__ import annotations

import glob
import json
from collections.abc import Sequence

from overspan.adapters.abilities import EndedLaunch
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.files.application import InstalledApplication, name_archive
from overspan.adapters.slurm.groups.handles import is_group_handle, parse_group
from overspan.adapters.slurm.rendering.renderer import DEFAULT_ROOT, resolve_root
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.transport import Transport
from overspan.bridge.model.errors import Conflict
from overspan.bridge.runtime.data.unsent import UnsentListing, UnsentPlace, pack_places, read_listing

LOOK_SECONDS = 600.0
"""The longest time of one look, or of one removal."""


class SlurmUnsent:
    """That of run directories (`abilities.UnsentKeeper`). `transport` has no care but this."""

    def __init__(self, queries: Queries, transport: Transport, settings: Settings, root: str) -> None:
        self._queries = queries
        self._transport = transport
        self._settings = settings
        self._root = root
        self._library = InstalledApplication(queries.transport)
        self.seconds = settings.data_keep

    async def list_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """What these have left."""
        return await self._run("ls", jobs)

    async def remove_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """Remove what these have left."""
        return await self._run("rm", jobs)

    async def _run(self, verb: str, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """What the application answers. Raises Conflict and Unreachable."""
        places = [(each.job.id, parse_group(each.handle).folder) for each in jobs if is_group_handle(each.handle)]
        if not places:
            return UnsentListing()
        root = resolve_root(self._root or DEFAULT_ROOT, (await self._queries.site()).home)
        await self._library.bring(root)
        words = (self._settings.python, "-I", "-S", f"{root}/lib/{name_archive()}", "unsent", verb)
        line = pack_places(UnsentPlace(job, glob.escape(folder), folder) for job, folder in places)
        done = await self._transport.run(words, stdin=line, timeout=LOOK_SECONDS)
        try:
            return read_listing(json.loads(done.text))
        except (ValueError, LookupError, TypeError):
            why = done.words.strip() or f"exit code {done.rc}"
            raise Conflict(f"the login node could not look at what jobs have left: {why}") from None
