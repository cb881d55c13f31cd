"""What the cluster's nodes have, remembered for a while: for numbers that nobody asked for, which they bound."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Sequence

from overspan.adapters.contract import Node
from overspan.bridge.model.job import Job

KEEP_SECONDS = 60.0
PORTION = 0.9
"""Of a node that tasks may have without asking: its own pods (DaemonSets) have the rest."""


class Sizes:
    """Asks for the nodes when a job needs them, once for all jobs of a minute."""

    def __init__(self, ask: Callable[[], list[Node]]) -> None:
        self._ask = ask
        self._asked_at: float | None = None
        self.known: Sequence[Node] = ()

    async def ask(self, jobs: Iterable[Job]) -> Sequence[Node]:
        """The nodes; none where no job has defaults to bound. Raises what asking raises."""
        if not any(task.resources.gpu_defaults and task.resources.gpus for job in jobs for task in job.spec.tasks):
            return ()
        now = time.monotonic()
        if self._asked_at is None or now - self._asked_at > KEEP_SECONDS:
            self.known = await asyncio.to_thread(self._ask)
            self._asked_at = now
        return self.known
