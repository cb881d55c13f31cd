"""A program to measure: the terminal UI with 100,000 jobs, as a daemon would tell them."""

from __future__ import annotations

import time
from typing import Any, cast

from overspan.bridge.client.records import QueueChanges
from overspan.bridge.listings.rows import CORE, JobRow, rows_from_document
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.daemon.source import Source

JOBS = 100_000


class ManyJobs:
    """Tells them once, and then of no change."""

    autostart = False
    timeout = 60.0

    def queue_changes(self, version: str = "", wanted: object = None, wait: float = 0) -> QueueChanges:
        """All of them, or nothing new."""
        time.sleep(wait)
        rows = [] if version else rows_from_document(CORE, [_make_row(number) for number in range(1, JOBS + 1)])
        return QueueChanges(time.time(), "1", not version, (), rows)

    def close(self) -> None:
        """As the client."""


def _make_row(number: int) -> list[Any]:
    name, user = f"n{number % 97}", f"u{number % 40}"
    row = JobRow(id=number, raw_id=number, name=name, user=user, partition="gpu", cluster="leo", reason="Priority")
    return list(row[: len(CORE)])


if __name__ == "__main__":
    TopApp(lambda: cast(Source, ManyJobs()), TopOptions()).run()
