"""Submissions that were given up for cancelled jobs: an overloaded slurmctld may carry one out minutes later.

Each is looked for some more times, ever later, and cancelled where it has come. Not stored: a daemon that starts anew
looks for none of them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.handles import name_native
from overspan.adapters.slurm.observation.requeues import list_alive
from overspan.adapters.slurm.orders.job_commands import cancel_natives
from overspan.adapters.slurm.submission.arrays import Key, native_of
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

WAITS = (15.0, 30.0, 60.0, 120.0, 240.0, 480.0)
"""Seconds before each look."""


class LateCommits:
    """Looks for the native jobs of submissions that were given up."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._looks: dict[Key, int] = {}
        """How often each was looked for."""
        self._task: asyncio.Task[None] | None = None

    def expect(self, keys: Iterable[Key]) -> None:
        """Look for these from now on."""
        self._looks |= dict.fromkeys(keys, 0)
        if self._looks and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """Look for nothing any more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while self._looks:
            await asyncio.sleep(WAITS[min(self._looks.values())])
            keys = [*self._looks]
            try:
                await self._cancel(keys)
            except OverspanError as error:
                _log.info("submissions that were given up are looked for later: %s", error.message)
            looks = {key: count + (key in keys) for key, count in self._looks.items()}
            self._looks = {key: count for key, count in looks.items() if count < len(WAITS)}

    async def _cancel(self, keys: Iterable[Key]) -> None:
        found = await self._queries.find_in_queue(keys)
        names = sorted(
            {name_native(*native_of(record, key.element)) for key in found for record in list_alive(found[key])}
        )
        if names:
            _log.warning("cancelled jobs came late and are cancelled in Slurm: %s", ", ".join(names))
            await cancel_natives(self._queries.transport, names)
