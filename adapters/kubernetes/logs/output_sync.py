"""Copies logs of pods into scripts' output files on this machine, which are complete before an end is reported."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.logs.logs import Logs
from overspan.adapters.kubernetes.logs.output_files import OutputFiles
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.records import PodRecord
from overspan.bridge.model.errors import OverspanError

_log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often the log of one pod is read at most."""
RATE = 10.0
"""How many logs are read in a second."""
HOLD_SECONDS = 10.0
"""How long the end of a job waits for its last output; a node that does not answer keeps its own."""


class OutputSync:
    """Copies the logs of pods whose scripts write into files of this machine."""

    def __init__(self, launches: Launches, logs: Logs, files: OutputFiles) -> None:
        self._launches = launches
        self._logs = logs
        self._files = files
        self._due: dict[str, float] = {}
        """By uid, when a log is read next (time.monotonic)."""
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._held: dict[str, float] = {}
        """By uid, since when an end waits."""
        self._whole: set[str] = set()

    @property
    def busy(self) -> bool:
        """Whether a log is being read."""
        return bool(self._under_way)

    def look(self, launches: Iterable[WatchedLaunch]) -> None:
        """Read the logs whose time it is, each beside all others."""
        pods = [pod for watched in launches for pod in self._list(watched)]
        present = {pod.uid for pod in pods}
        self._due = {uid: at for uid, at in self._due.items() if uid in present}
        self._held = {uid: at for uid, at in self._held.items() if uid in present}
        self._whole &= present
        period, now = max(LOOK_SECONDS, len(pods) / RATE), time.monotonic()
        for pod in pods:
            if pod.uid not in self._whole and now >= self._due.get(pod.uid, 0.0):
                self._due[pod.uid] = now + period
                self._read(pod)

    def holds(self, watched: WatchedLaunch) -> bool:
        """Whether the end of a launch must not be reported yet: its last lines are still being copied."""
        held, now = False, time.monotonic()
        for pod in self._list(watched):
            if pod.ended and pod.uid not in self._whole:
                if pod.uid not in self._held:
                    self._held[pod.uid] = now
                    self._read(pod)
                held = held or now < self._held[pod.uid] + HOLD_SECONDS
        return held

    async def close(self) -> None:
        """Read nothing any more."""
        tasks = list(self._under_way.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _list(self, watched: WatchedLaunch) -> list[PodRecord]:
        files = self._files.find(watched.token)
        if files is None or not files.outputs.kept:
            return []
        return [
            pod
            for pod in self._launches.pods(watched)
            if files.has(pod.task, pod.index) and pod.go and pod.started_at is not None
        ]

    def _read(self, pod: PodRecord) -> None:
        if pod.uid not in self._under_way:
            self._under_way[pod.uid] = asyncio.create_task(self._keep(pod))

    async def _keep(self, pod: PodRecord) -> None:
        try:
            known: PodRecord | None = pod
            while known is not None:
                ended = known.ended
                if await self._logs.capture(known) and ended:
                    self._whole.add(pod.uid)
                # If it has ended meanwhile there is more to read.
                known = None if ended else self._find_ended(pod)
        except OverspanError as error:
            _log.info("the log of pod %s cannot be read: %s", pod.name, error)
        finally:
            self._under_way.pop(pod.uid, None)
            watched = self._launches.watched.get(pod.token)
            if pod.uid in self._held and watched is not None:
                watched.dirty = True
                self._launches.changed.set()

    def _find_ended(self, pod: PodRecord) -> PodRecord | None:
        watched = self._launches.watched.get(pod.token)
        present = self._launches.pods(watched) if watched is not None else []
        return next((one for one in present if one.uid == pod.uid and one.ended), None)
