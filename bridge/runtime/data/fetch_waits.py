"""Node runs that wait for the data of their task's storage before they begin."""

from __future__ import annotations

import signal
from typing import Callable

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core.node_runs import report_end, report_failure
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.data.mover_control import DataMover


class FetchWaits:
    """The node runs of a launch that wait, each with the job as it was when it was to start."""

    def __init__(self, mover: DataMover) -> None:
        self._mover = mover
        self._waiting: dict[NodeKey, Job] = {}
        self._stopped: list[NodeKey] = []

    def add(self, job: Job, key: NodeKey) -> None:
        """Have a node run wait."""
        self._waiting[key] = job

    def begin(self, begin: Callable[[Job, NodeKey, float], list[Event]], now: float) -> list[Event]:
        """Begin the node runs whose data has come; the reports of those that cannot be started."""
        reports: list[Event] = []
        for key, job in list(self._waiting.items()):
            try:
                answer = self._mover.fetch(key.task, key.attempt, now)
            except OSError as error:
                del self._waiting[key]
                reports.append(report_failure(key, now, error))
                continue
            if answer is None:
                continue
            del self._waiting[key]
            if answer.error:
                cause = Cause.BOOT if answer.passes else Cause.SETUP
                reports.append(report_end(key, now, cause=cause, detail=answer.error))
            else:
                reports += begin(job, key, now)
        return reports

    def stop(self, task: str, attempt: int) -> None:
        """End those of an attempt."""
        keys = [key for key in self._waiting if (key.task, key.attempt) == (task, attempt)]
        for key in keys:
            del self._waiting[key]
        if keys:
            self._mover.abandon(task, attempt)
        self._stopped += keys

    def collect(self, now: float) -> list[Event]:
        """The reports of those that were ended since the last call."""
        stopped, self._stopped = self._stopped, []
        return [report_end(key, now, signal=signal.SIGTERM, detail="ended before its start") for key in stopped]

    @property
    def stopped(self) -> bool:
        """Whether any was ended since the last call of `collect`."""
        return bool(self._stopped)
