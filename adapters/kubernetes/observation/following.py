"""The long poll over the watched launches: which have new events, and which may get some by time alone."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping

from overspan.adapters.contract import Observation, Report
from overspan.adapters.kubernetes.launches.launches import Handle, Launches, read_handle
from overspan.adapters.kubernetes.logs.live_logs import LiveLogs
from overspan.adapters.kubernetes.logs.logs import Logs
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.launch_summaries import LaunchSummary
from overspan.adapters.kubernetes.observation.projection import PodSnapshot
from overspan.adapters.kubernetes.observation.records import PodRecord

GATHER_SECONDS = 0.01
"""How long further changes are collected once there is one, so that they share a report."""
TICK_SECONDS = 1.0
"""How often launches are projected that may change by time alone."""


class LaunchObserver:
    """Reports new events. Only launches with changed pods, a new cursor or a pending time-out are projected."""

    def __init__(
        self,
        launches: Launches,
        live: LiveLogs,
        logs: Logs,
        holds: Callable[[WatchedLaunch], bool] = lambda watched: False,
    ) -> None:
        self._launches = launches
        self._holds = holds
        self._live = live
        self._logs = logs
        self._handles: dict[str, Handle | None] = {}
        self._away = False
        """Whether the last poll failed because a server does not answer."""

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        """Events of the launches in `since`, within `timeout` seconds. Raises the watches' trouble."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        await self._find(since)
        while True:
            self._launches.changed.clear()
            reports = self._collect(since)
            left = deadline - loop.time()
            back, self._away = self._away and self._launches.fresh, self._away and not self._launches.fresh
            if reports or back or left <= 0:
                return Observation(tuple(reports), time.time())
            try:
                async with asyncio.timeout(min(left, TICK_SECONDS)):
                    await self._launches.changed.wait()
                await asyncio.sleep(GATHER_SECONDS)
            except TimeoutError:
                continue

    async def _find(self, since: Mapping[str, str]) -> None:
        self._live.follow_ends_only_of(self._launches.watched.keys())
        self._handles = {text: self._handles.get(text) or read_handle(text) for text in since}
        await self._launches.find_all([handle for handle in self._handles.values() if handle is not None])

    def _collect(self, since: Mapping[str, str]) -> list[Report]:
        """Reports of all launches that may have one; only of vanished ones until each watch has listed its pods."""
        launches = self._launches.watched
        # Launches of a later version, or of another kind of cluster, are not known to be gone.
        absent = [text for text, handle in self._handles.items() if handle is not None and handle.token not in launches]
        reports = [Report(text, (), since[text], gone=True) for text in absent]
        for handle in self._handles.values():
            if handle is not None and handle.token in launches:
                # The watch of a launch begins with the first look at it.
                self._launches.watch(handle)
        trouble = self._launches.trouble()
        if trouble is not None:
            self._away = True
            raise trouble
        if not self._launches.fresh:
            return reports
        news, now = self._launches.take_news(), time.time()
        for token in news & launches.keys():
            launches[token].dirty = True
        for text, cursor in since.items():
            handle = self._handles[text]
            watched = launches.get(handle.token) if handle is not None else None
            if watched is None or self._holds(watched):
                continue
            if watched.dirty or watched.timed or watched.since != cursor:
                report = self._project(watched, cursor, now)
                if report is not None:
                    reports.append(report)
        return reports

    def _project(self, watched: WatchedLaunch, cursor: str, now: float) -> Report | None:
        snapshot = self._launches.snapshot(watched)
        report = watched.project(snapshot, cursor, now)
        going = [pod for pod in snapshot.pods.values() if pod.deleting_at is not None]
        ending = [pod for pod in going if not pod.ended]
        self._live.follow_ends(watched.token, list_followed(watched.summary, snapshot), {pod.uid for pod in going})
        self._logs.follow_to_end(ending)
        watched.since = cursor
        # A report may be lost before it is stored: it is made again until the cursor has moved.
        watched.dirty = report is not None
        watched.timed = not watched.cursor.granted or bool(watched.missing) or bool(ending)
        return report


def list_followed(summary: LaunchSummary, snapshot: PodSnapshot) -> list[PodRecord]:
    """The pods whose logs are followed for their end marks: those that run, of tasks whose ends end others."""
    tasks = {task.name for task in summary.tasks if task.prints_end_mark}
    return [
        pod
        for pod in snapshot.pods.values()
        if pod.task in tasks and pod.go and pod.started_at is not None and not pod.ended and pod.deleting_at is None
    ]
