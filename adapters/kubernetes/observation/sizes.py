"""What the cluster's nodes have, remembered for a while: for numbers that nobody asked for, which they bound."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence

from overspan.adapters.contract import Node
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.job import Job

_log = logging.getLogger(__name__)

KEEP_SECONDS = 60.0
PORTION = 0.9
"""Of a node that tasks may have without asking: its own pods (DaemonSets) have the rest."""


class NodeCache:
    """Asks for the nodes when a job needs them, once for all jobs of a minute."""

    def __init__(self, ask: Callable[[], list[Node]]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        self._looking: asyncio.Task[None] | None = None
        self.known: Sequence[Node] = ()

    def note(self, nodes: Sequence[Node]) -> None:
        """Remember nodes that were asked for otherwise."""
        self.known, self._asked_at = nodes, time.monotonic()

    def look(self) -> None:
        """Begin to ask for the nodes where that was long ago; nobody waits for it."""
        if self._fresh() or (self._looking is not None and not self._looking.done()):
            return
        self._looking = asyncio.create_task(self._look())

    async def close(self) -> None:
        """Ask for nothing any more."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.gather(self._looking, return_exceptions=True)

    async def _look(self) -> None:
        try:
            self.note(await asyncio.to_thread(self._ask))
        except OverspanError as error:
            _log.info("the nodes are not known: %s", error)

    def _fresh(self) -> bool:
        return self._asked_at is not None and time.monotonic() - self._asked_at <= KEEP_SECONDS

    async def ask(self, jobs: Iterable[Job]) -> Sequence[Node]:
        """The nodes; none where no job has defaults to bound. Raises what asking raises."""
        if not any(task.resources.gpu_defaults and task.resources.gpus for job in jobs for task in job.spec.tasks):
            return ()
        if not self._fresh():
            self.note(await asyncio.to_thread(self._ask))
        return self.known
