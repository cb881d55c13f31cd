"""Looks at pods whose data is on its way: how far it is, and whether the nodes that have it are still there."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.launches.lost_nodes import is_lost, list_doubtful
from overspan.adapters.kubernetes.observation.flush_progress import ask_progress
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.runtime.data.requests import FlushProgress

_log = logging.getLogger(__name__)

QUESTIONS = 4
"""At the same time: each has a thread of the connection, for as long as its node is silent."""


class Flushes:
    """Single-flight and in the background: a node that does not answer holds up no other care of the cluster."""

    def __init__(self, connection: Connection, launches: Launches) -> None:
        self._connection = connection
        self._launches = launches
        self._questions = asyncio.Semaphore(QUESTIONS)
        self._look: asyncio.Task[None] | None = None

    def begin(self, launches: Sequence[WatchedLaunch]) -> None:
        """Look at these launches, unless the last look is still under way."""
        if launches and (self._look is None or self._look.done()):
            self._look = asyncio.create_task(self._run(launches))

    async def close(self) -> None:
        """Look no more."""
        if self._look is not None:
            self._look.cancel()
            await asyncio.gather(self._look, return_exceptions=True)

    async def _run(self, launches: Sequence[WatchedLaunch]) -> None:
        for outcome in await asyncio.gather(*map(self._look_at, launches), return_exceptions=True):
            if isinstance(outcome, OverspanError):
                _log.info("how far data of pods is cannot be asked: %s", outcome)
            elif isinstance(outcome, Exception):
                _log.error("how far data of pods is", exc_info=outcome)

    async def _look_at(self, watched: WatchedLaunch) -> None:
        doubtful = list_doubtful(watched, self._launches.pods(watched), time.time())
        lost = frozenset([pod.uid for pod in doubtful if await is_lost(self._connection, pod.node)])
        if lost != watched.lost:
            watched.lost, watched.dirty = lost, True
            self._launches.changed.set()
        snapshot = self._launches.snapshot(watched)
        leaving = watched.list_leaving(snapshot)
        pods = [*watched.list_sending(snapshot, watched.cursor), *leaving]
        if not pods:
            return
        found = await asyncio.gather(*map(self._ask, pods))
        known = {pod.uid: told for pod, told in zip(pods, found, strict=True) if told is not None}
        # A mover tells how far it is when the pod's program has ended.
        watched.left.update({pod.uid: time.time() for pod in leaving if pod.uid in known})
        if known != watched.sending:
            watched.sending, watched.dirty = known, True
            self._launches.changed.set()

    async def _ask(self, pod: PodRecord) -> FlushProgress | None:
        async with self._questions:
            return await ask_progress(self._connection, pod)
