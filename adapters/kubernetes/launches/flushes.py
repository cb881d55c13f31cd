"""Polls pods that send their data after the program's end: the progress, and whether their nodes still answer.

A pod that is deleted on a node that does not answer has the time of its data in its grace, which never comes. Without
data a pod that does not end in its grace says the same by itself (projection.is_stuck).
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Sequence

from overspan.adapters.contract import MOST_WORDS
from overspan.adapters.kubernetes.api.connection import Connection
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.projection import STUCK_SECONDS
from overspan.adapters.kubernetes.observation.records import MOVER, PodRecord
from overspan.bridge.model.errors import OverspanError
from overspan.bridge.model.names import one_line
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


async def ask_progress(connection: Connection, pod: PodRecord) -> FlushProgress | None:
    """How far the data of a pod is; None where nothing is told."""
    path = f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log"
    try:
        return read_progress(await connection.run(connection.read, path, {"container": MOVER, "tailLines": 1}))
    except OverspanError:
        return None


def read_progress(line: bytes) -> FlushProgress | None:
    """The figures of a line; None for any other line."""
    try:
        told = json.loads(line)
        return FlushProgress(int(told["left"]), one_line(str(told["trouble"]), MOST_WORDS))
    except (ValueError, KeyError, TypeError):
        return None


def list_doubtful(watched: WatchedLaunch, pods: Iterable[PodRecord], now: float) -> list[PodRecord]:
    """The pods of a launch whose program should have ended long ago, were it not for the time of their data."""
    graces = {task.name: task.grace for task in watched.summary.tasks if task.flush}
    return [
        pod
        for pod in pods
        if pod.asked_at is not None
        and pod.phase not in ("Succeeded", "Failed")
        and pod.node
        and now > pod.asked_at + graces.get(pod.task, float("inf")) + STUCK_SECONDS
    ]


async def is_lost(connection: Connection, node: str) -> bool:
    """Whether a node does not answer, or is gone; False where this login may not ask. Raises Unreachable."""
    answer = await connection.call("GET", f"/api/v1/nodes/{node}")
    if answer.status == 404:
        return True
    conditions = (answer.document.get("status") or {}).get("conditions") or () if answer.works else ()
    return any(one.get("type") == "Ready" and one.get("status") == "Unknown" for one in conditions)
