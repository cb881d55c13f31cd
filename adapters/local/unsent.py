"""What jobs of this machine could not send: below the cluster's root, in a folder for each job."""

from __future__ import annotations

import asyncio
import glob
import os
from collections.abc import Sequence

from overspan.adapters.abilities import EndedLaunch
from overspan.bridge.runtime.data.unsent import UnsentListing, UnsentPlace, look


class LocalUnsent:
    """That of the root (`abilities.UnsentKeeper`)."""

    def __init__(self, root: str, seconds: int | None) -> None:
        self._root = root
        self.seconds = seconds

    async def list_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """What these have left."""
        return await self._look("ls", jobs)

    async def remove_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        """Remove what these have left."""
        return await self._look("rm", jobs)

    async def _look(self, verb: str, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        pattern, runs = glob.escape(self._root), os.path.join(self._root, "runs")
        places = [UnsentPlace(each.job.id, pattern, os.path.join(runs, str(each.job.id))) for each in jobs]
        return await asyncio.to_thread(look, verb, places)
