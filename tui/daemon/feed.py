"""Feed: the queue as the daemon tells it, change by change, from a thread of its own.

The daemon keeps an answer back until something changes. When changes come fast, the feed asks less often: what came
meanwhile is told in one answer. One answer is on its way at a time; the next is asked for when the application has
taken the last one, so that a slow terminal is never behind.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from overspan.bridge.client.records import JobFilter, QueueChanges
from overspan.bridge.client.transport import Silent
from overspan.bridge.model.errors import OverspanError, Unreachable
from overspan.tui.daemon.questions import Deliver, ask_safely
from overspan.tui.daemon.source import OpenSource, Source

WAIT_SECONDS = 15.0
"""How long the daemon may keep an answer back while nothing changes."""
SILENCE_SECONDS = 10.0
"""How long an answer that is due may take: after that it is said that none comes."""
_PATIENCE = 60.0
"""The same, seconds, for the whole queue, which takes longer, and for a daemon that was lost."""
QUICKEST = 0.1
"""The least time between two answers, seconds: a change after a quiet while is seen at once."""
SLOWEST = 1.0
"""The time between two answers when changes come all the time."""
RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0)
"""Pauses before a lost daemon is looked for again; the last one stays."""


class Lost(NamedTuple):
    """The daemon does not answer: since when (epoch seconds), why, and what the user can do."""

    since: float
    why: str
    remedy: str = ""
    present: bool = False
    """Whether there is a daemon, whose answer does not come, is a refusal or cannot be read."""
    unstarted: bool = False
    """Whether one was to be started, and could not be."""
    starting: bool = False
    """Whether one is being started, until it answers."""


def choose_pace(pace: float, waited: float) -> float:
    """The pause before the next question, after an answer that came `waited` seconds behind a pause of `pace`."""
    return min(pace * 2, SLOWEST) if waited < pace else QUICKEST


def choose_retry(failures: int) -> float:
    """The pause after so many failures in a row."""
    return RETRY_SECONDS[min(failures, len(RETRY_SECONDS)) - 1]


class QueueFeed:
    """Calls `take` with every answer, and `lose` when there is none; both in the application's thread.

    The first question may start a daemon, unless this is not the first feed: `may_start`. One that ends later was
    ended on purpose: then only `retry` starts another.
    """

    def __init__(
        self,
        open_source: OpenSource,
        deliver: Deliver,
        wanted: JobFilter,
        take: Callable[[QueueChanges], None],
        lose: Callable[[Lost], None],
        may_start: bool = True,
    ) -> None:
        self._open_source = open_source
        self._deliver = deliver
        self._wanted = wanted
        self._take = take
        self._lose = lose
        self.tried = threading.Event()
        """Set once the first question is answered, or failed."""
        self._wake = threading.Event()
        self._closed = False
        self._paused = False
        self._may_start = may_start
        self._lost: Lost | None = None
        self._start_failed = False
        self._version = ""

    def start(self) -> None:
        """Begin to follow."""
        threading.Thread(target=self._run, name="queue feed", daemon=True).start()

    def close(self) -> None:
        """Stop; the thread ends with its answer."""
        self._closed = True
        self.tried.set()
        self._wake.set()

    def retry(self) -> None:
        """Try a lost daemon again at once, and start one where none runs."""
        self._may_start = self._may_start or self._lost is not None
        self._wake.set()

    def pause(self, paused: bool) -> None:
        """Tell nothing for a while; afterwards all that has changed meanwhile."""
        self._paused = paused
        self._wake.set()

    def _run(self) -> None:
        source, pace, failures = self._open_source(), QUICKEST, 0
        while not self._closed:
            if self._paused:
                self._wait(None)
                continue
            begun = time.monotonic()
            answer = self._ask(source)
            if isinstance(answer, OverspanError):
                failures += 1
                self._wait(choose_retry(failures))
                if self._may_start:
                    failures = 0
            elif answer is not None:
                failures, pace = 0, choose_pace(pace, time.monotonic() - begun)
                self._wait(pace)
        source.close()

    def _ask(self, source: Source) -> QueueChanges | OverspanError | None:
        """Ask once and tell the application; None where the pause began before the answer came."""
        starting, self._may_start = self._may_start, False
        source.autostart = starting
        wait = WAIT_SECONDS if self._version and self._lost is None else 0.0
        source.timeout = SILENCE_SECONDS if wait else _PATIENCE
        if starting and self._lost is not None and not self._lost.present:
            self._tell_loss(self._lost._replace(starting=True))
        answer = ask_safely(lambda: source.queue_changes(self._version, self._wanted, wait))
        self.tried.set()
        if isinstance(answer, OverspanError):
            self._tell_loss(self._describe(answer, starting))
        elif self._paused:
            return None
        elif self._lost is not None or answer.version != self._version:
            self._lost, self._start_failed, self._version = None, False, answer.version
            self._give(self._take, answer)
        return answer

    def _tell_loss(self, lost: Lost) -> None:
        if lost != self._lost:
            self._lost = lost
            self._give(self._lose, lost)

    def _describe(self, error: OverspanError, starting: bool) -> Lost:
        """Why a daemon could not be started says more than that none runs, which is all that later tries find."""
        if self._start_failed and not starting and self._lost is not None and isinstance(error, Unreachable):
            return self._lost
        self._start_failed = starting
        since = time.time() if self._lost is None else self._lost.since
        present = not isinstance(error, Unreachable) or isinstance(error, Silent)
        return Lost(since, error.message, error.remedy, present, starting)

    def _wait(self, seconds: float | None) -> None:
        self._wake.wait(seconds)
        self._wake.clear()

    def _give(self, to: Callable[..., None], value: object) -> None:
        """Call a function of the application, and wait until it is done."""
        done = threading.Event()

        def give() -> None:
            try:
                if not self._closed:
                    to(value)
            finally:
                done.set()

        try:
            self._deliver(give)
        except RuntimeError:
            # The application's event loop has ended.
            self._closed = True
        while not self._closed and not done.wait(1.0):
            pass
