"""What `observe` answers: the new events of each launch behind its cursor."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from overspan.adapters.contract import Report
from overspan.adapters.local.journals import News, read_news
from overspan.adapters.local.launch_files import LaunchFiles, parse_handle
from overspan.adapters.local.launches import LocalLaunch
from overspan.bridge.model.events import Event, Queued
from overspan.bridge.runtime.core.loss_records import is_damage, word_damage
from overspan.bridge.runtime.core.shortages import is_shortage


class Reports:
    """Keeps track of launches with new events, so that an observation without any costs little."""

    def __init__(self, root: str, runs: Mapping[str, LocalLaunch]) -> None:
        self._root = root
        self._runs = runs
        self._followed: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._untold: set[str] = set()
        self._gone: set[str] = set()
        self._again: set[str] = set()
        self._ends: dict[str, tuple[Event, ...]] = {}
        self.suspects: dict[str, str] = {}
        """Possibly lost launches: watched, but unreadable or unknown; the value is the cause, if known."""
        self.fresh = asyncio.Event()

    def mark(self, handle: str) -> None:
        """A launch's files have grown."""
        self._dirty.add(handle)
        self.fresh.set()

    def set_reason(self, run: LocalLaunch, reason: str, starts_by: float | None = None) -> None:
        """Set a waiting launch's reason, and when it starts at the latest."""
        if (run.reason, run.starts_by) != (reason, starts_by):
            run.reason, run.starts_by = reason, starts_by
            self._untold.add(run.handle)
            self.fresh.set()

    def drop_reason(self, run: LocalLaunch) -> None:
        """A launch waits no longer."""
        run.reason, run.starts_by = "", None
        self._untold.discard(run.handle)

    def report_end(self, handle: str, events: tuple[Event, ...]) -> None:
        """Report an end that the launch's files do not contain."""
        self._ends[handle] = events
        self.mark(handle)

    @property
    def unsettled(self) -> bool:
        """Whether something must be reported or read again."""
        return bool(self._gone or self._again or self.suspects)

    def repeat_gone(self) -> None:
        """Tell again of launches without a trace; whoever took note does not ask for them any more."""
        if self._gone or self._again:
            self._dirty |= self._gone | self._again
            self._again = set()
            self.fresh.set()

    def look_again(self, handle: str) -> None:
        """Nothing is known of a launch for now."""
        self._again.add(handle)

    async def collect(self, since: dict[str, str]) -> list[Report]:
        """The reports that are there now. Nothing counts as told when the caller is cancelled meanwhile."""
        if len(self._followed) > 2 * len(since) + 1000:
            self._prune(since)
        self._gone &= since.keys()
        self._again &= since.keys()
        unread = {handle for handle, _ in since.items() - self._followed.items()} | (self._dirty & since.keys())
        # What is not in the books has ended by its files, or nobody looks after it.
        unread |= since.keys() - self._runs.keys() - self._gone
        self._dirty -= unread
        places = {handle: parse_handle(self._root, handle) for handle in unread}
        # Before the reading: what leaves the books meanwhile has its end in its files.
        unknown = {handle for handle in unread if handle not in self._runs}
        quiet = {handle for handle in unread if handle in self._runs and _is_quiet(self._runs[handle])}
        reading = {handle: (places[handle], since[handle]) for handle in unread - quiet}
        try:
            news = await asyncio.to_thread(_read, reading) if reading else {}
        except BaseException:
            self._dirty |= unread
            raise
        found: dict[str, Report] = {}
        for handle in quiet:
            self._followed[handle] = since[handle]
        for handle, told in news.items():
            report = self._make(reading[handle], told, handle in unknown)
            if report is not None:
                found[handle] = report
        untold = self._untold & since.keys()
        self._untold -= untold
        for handle in untold:
            self._add_reason(found, handle, since[handle])
        return list(found.values())

    def _prune(self, since: Mapping[str, str]) -> None:
        """Forget what concerns launches that are over and that nobody asks for any more."""
        self._followed = {handle: cursor for handle, cursor in self._followed.items() if handle in since}
        self._dirty = {handle for handle in self._dirty if handle in since or handle in self._runs}
        self._untold = {handle for handle in self._untold if handle in since or handle in self._runs}
        self._ends = {handle: events for handle, events in self._ends.items() if handle in since}

    def _make(self, asked: tuple[LaunchFiles, str], news: News | OSError, unknown: bool) -> Report | None:
        place, cursor = asked
        handle = place.handle
        if isinstance(news, News) and news.more:
            self._dirty.add(handle)
        if isinstance(news, News) and news.events:
            self._followed[handle] = news.cursor
            return Report(handle, news.events, news.cursor)
        self._followed[handle] = cursor
        if handle in self._ends:
            self._gone.add(handle)
            return Report(handle, self._ends[handle], cursor, gone=True)
        if isinstance(news, OSError):
            if is_damage(news):
                self.suspects[handle] = word_damage(news)
            else:
                self.look_again(handle)
        elif unknown and handle not in self._again:
            self.suspects.setdefault(handle, "")
        return None

    def _add_reason(self, found: dict[str, Report], handle: str, cursor: str) -> None:
        run = self._runs.get(handle)
        if run is None or not run.reason or run.held:
            return
        events: tuple[Event, ...] = (Queued(time.time(), run.reason, run.starts_by),)
        earlier = found.get(handle)
        if earlier is not None:
            events, cursor = (*earlier.events, *events), earlier.cursor
        found[handle] = Report(handle, events, cursor)


def _is_quiet(run: LocalLaunch) -> bool:
    """Whether a launch has no file that could tell anything."""
    return run.booking is None and not run.noted


def _read(reading: Mapping[str, tuple[LaunchFiles, str]]) -> dict[str, News | OSError]:
    """The news of each launch, or what kept them away; one that cannot be read keeps no other."""
    news: dict[str, News | OSError] = {}
    for handle, (place, cursor) in reading.items():
        try:
            news[handle] = read_news(place, cursor)
        except OSError as error:
            if is_shortage(error):
                raise
            news[handle] = error
    return news
