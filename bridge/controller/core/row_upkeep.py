"""Encodes the rows of changed jobs a moment later, so that a listing of the queue need not encode all at once.

A job that is over by then has no row made: of short jobs that is all but the one that the history keeps.
"""

from __future__ import annotations

import asyncio

from overspan.bridge.controller.core.registry import JobEntry
from overspan.bridge.controller.core.rows import job_row

AFTER_SECONDS = 0.3
PAUSE_SECONDS = 0.01
AT_ONCE = 50
"""Rows between two pauses: about 5 ms."""


class RowUpkeep:
    """The jobs whose rows are due."""

    def __init__(self) -> None:
        self._due: dict[int, JobEntry] = {}
        self._armed = False

    def note(self, entry: JobEntry) -> None:
        """A job has changed."""
        self._due[entry.job.id] = entry
        if not self._armed:
            self._arm(AFTER_SECONDS)

    def _arm(self, seconds: float) -> None:
        self._armed = True
        asyncio.get_running_loop().call_later(seconds, self._encode)

    def _encode(self) -> None:
        self._armed = False
        for job_id in list(self._due)[:AT_ONCE]:
            entry = self._due.pop(job_id)
            if not entry.job.over:
                job_row(entry)
        if self._due:
            self._arm(PAUSE_SECONDS)
