"""Feed: the queue as the daemon tells it, change by change, from a thread of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from overspan.bridge.client.records import JobFilter, QueueChanges
from overspan.bridge.model.errors import OverspanError
from overspan.tui.questions import Deliver
from overspan.tui.source import OpenSource

WAIT_SECONDS = 15.0
"""How long the daemon may keep an answer back while nothing changes."""
PACE_SECONDS = 0.25
"""The least time between two answers: changes that come faster are told together."""
RETRY_SECONDS = 1.0


class Lost(NamedTuple):
    """The daemon does not answer: since when (epoch seconds), and why."""

    since: float
    why: str


class QueueFeed:
    """Calls `take` with every answer, and `lose` when there is none; both in the application's thread."""

    def __init__(
        self,
        open_source: OpenSource,
        deliver: Deliver,
        wanted: JobFilter,
        take: Callable[[QueueChanges], None],
        lose: Callable[[Lost], None],
    ) -> None:
        self._open_source = open_source
        self._deliver = deliver
        self._wanted = wanted
        self._take = take
        self._lose = lose
        self._again = threading.Event()
        self._closed = False

    def start(self) -> None:
        """Begin to follow."""
        threading.Thread(target=self._run, daemon=True).start()

    def close(self) -> None:
        """Stop; the thread ends with its answer."""
        self._closed = True
        self._again.set()

    def retry(self) -> None:
        """Try a lost daemon again at once."""
        self._again.set()

    def _run(self) -> None:
        source, version, lost = self._open_source(), "", 0.0
        while not self._closed:
            try:
                changes = source.queue_changes(version, self._wanted, WAIT_SECONDS if version and not lost else 0)
            except OverspanError as error:
                lost = lost or time.time()
                self._give(self._lose, Lost(lost, error.message))
                self._again.wait(RETRY_SECONDS)
                self._again.clear()
                continue
            if lost or changes.version != version:
                self._give(self._take, changes)
            version, lost = changes.version, 0.0
            time.sleep(PACE_SECONDS)
        source.close()

    def _give(self, to: Callable[..., None], value: object) -> None:
        self._deliver(lambda: None if self._closed else to(value))
