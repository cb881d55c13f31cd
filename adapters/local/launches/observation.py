"""Collects the reports for `observe`: the events of each launch behind its cursor.

What happens to a launch that waits is in memory, `q:LIFE:COUNT` the cursor behind so many of these events, where LIFE
names this process's. Those of an earlier life were either stored or are ordered again. Its journal follows: a cursor in
there is an offset.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Collection, Mapping, Sequence

from overspan.adapters.contract import Report
from overspan.adapters.local.files.journals import News, read_news
from overspan.adapters.local.files.launch_files import LaunchFiles, parse_handle
from overspan.adapters.local.launches.launches import LocalLaunch
from overspan.bridge.model.events import Event, Queued
from overspan.bridge.runtime.core.loss_records import is_damage, word_damage
from overspan.bridge.runtime.core.shortages import is_shortage

_NOTHING = News((), "")


class Reports:
    """Keeps track of launches with new events, so that an observation without any costs little."""

    def __init__(self, root: str, runs: Mapping[str, LocalLaunch]) -> None:
        self._root = root
        self._runs = runs
        self._followed: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._unreported: set[str] = set()
        self._gone: set[str] = set()
        self._again: set[str] = set()
        self._ends: dict[str, tuple[Event, ...]] = {}
        self._life = uuid.uuid4().hex[:8]
        self._told: dict[str, list[Event]] = {}
        """The events of launches while they waited."""
        self._left: set[str] = set()
        """Launches that ended while they waited: they have no files."""
        self.suspects: dict[str, str] = {}
        """Possibly lost launches: watched, but unreadable or unknown; the value is the cause, if known."""
        self.fresh = asyncio.Event()

    def tell(self, handle: str, events: Sequence[Event]) -> None:
        """Report events of a waiting launch."""
        self._told.setdefault(handle, []).extend(events)
        self.mark(handle)

    def leave(self, handle: str) -> None:
        """Note that a launch has ended while it waited."""
        self._left.add(handle)

    def has_left(self, handle: str) -> bool:
        """Whether a launch has ended while it waited."""
        return handle in self._left

    def forget(self, watched: Collection[str]) -> None:
        """Forget launches that ended while they waited, except those whose ends may not be stored yet."""
        self._told = {handle: told for handle, told in self._told.items() if handle in watched or handle in self._runs}
        self._left.intersection_update(watched)

    def mark(self, handle: str) -> None:
        """Note that a launch has something new."""
        self._dirty.add(handle)
        self.fresh.set()

    def set_reason(self, run: LocalLaunch, reason: str, starts_by: float | None = None) -> None:
        """Set a waiting launch's reason, and when it starts at the latest."""
        if (run.reason, run.starts_by) != (reason, starts_by):
            run.reason, run.starts_by = reason, starts_by
            self._unreported.add(run.handle)
            self.fresh.set()

    def drop_reason(self, run: LocalLaunch) -> None:
        """Drop the reason of a launch that no longer waits."""
        run.reason, run.starts_by = "", None
        self._unreported.discard(run.handle)

    def report_end(self, handle: str, events: tuple[Event, ...]) -> None:
        """Report an end that the launch's files do not contain."""
        self._ends[handle] = events
        self.mark(handle)

    @property
    def unsettled(self) -> bool:
        """Whether something must be reported or read again."""
        return bool(self._gone or self._again or self.suspects)

    def repeat_gone(self) -> None:
        """Report ends again that files do not contain, until the daemon no longer asks for these launches."""
        if self._gone or self._again:
            self._dirty |= self._gone | self._again
            self._again = set()
            self.fresh.set()

    def read_again(self, handle: str) -> None:
        """Read a launch again later, because it cannot be read now."""
        self._again.add(handle)

    def take_suspects(self) -> dict[str, str]:
        """The possibly lost launches, once; without those that wait again, which were read while their files went."""
        suspects, self.suspects = self.suspects, {}
        return {handle: why for handle, why in suspects.items() if not self._has_no_files(handle)}

    async def collect(self, since: dict[str, str]) -> list[Report]:
        """The current reports. If the caller is cancelled, none counts as reported."""
        if len(self._followed) > 2 * len(since) + 1000:
            self._prune(since)
        self._gone &= since.keys()
        self._again &= since.keys()
        unread = {handle for handle, _ in since.items() - self._followed.items()} | (self._dirty & since.keys())
        # A launch that is not live has its end in its files, or was lost.
        unread |= since.keys() - self._runs.keys() - self._gone
        self._dirty -= unread
        places = {handle: parse_handle(self._root, handle) for handle in unread}
        # Chosen before the read: a launch that ends during the read may have its end behind what was read.
        unknown = {handle for handle in unread if handle not in self._runs}
        waited = {handle: self._read_told(handle, since[handle]) for handle in unread}
        fileless = {handle for handle in unread if self._has_no_files(handle)}
        reading = {handle: (places[handle], waited[handle].cursor) for handle in unread - fileless}
        try:
            news = await asyncio.to_thread(_read, reading) if reading else {}
        except BaseException:
            self._dirty |= unread
            raise
        # One that waits again by now has given back what its journal told.
        news = {handle: told for handle, told in news.items() if not self._has_no_files(handle)}
        found: dict[str, Report] = {}
        for handle in unread:
            report = self._make(places[handle], waited[handle], news.get(handle, _NOTHING), handle in unknown)
            if report is not None:
                found[handle] = report
        unreported = self._unreported & since.keys()
        self._unreported -= unreported
        for handle in unreported:
            self._add_reason(found, handle, since[handle])
        return list(found.values())

    def _prune(self, since: Mapping[str, str]) -> None:
        """Forget ended launches that are no longer asked for."""
        self._followed = {handle: cursor for handle, cursor in self._followed.items() if handle in since}
        self._dirty = {handle for handle in self._dirty if handle in since or handle in self._runs}
        self._unreported = {handle for handle in self._unreported if handle in since or handle in self._runs}
        self._ends = {handle: events for handle, events in self._ends.items() if handle in since}

    def _read_told(self, handle: str, cursor: str) -> News:
        """What happened to a launch behind the cursor while it waited."""
        told, prefix = self._told.get(handle, ()), f"q:{self._life}:"
        if cursor.isdecimal() or not told:
            return News((), cursor)
        start = int(cursor.removeprefix(prefix)) if cursor.startswith(prefix) else 0
        return News(tuple(told[start:]), f"{prefix}{len(told)}")

    def _has_no_files(self, handle: str) -> bool:
        run = self._runs.get(handle)
        return run.launch is not None if run is not None else handle in self._left

    def _make(self, place: LaunchFiles, waited: News, news: News | OSError, unknown: bool) -> Report | None:
        handle, cursor = place.handle, waited.cursor
        if isinstance(news, News) and news.more:
            self._dirty.add(handle)
        if waited.events or (isinstance(news, News) and news.events):
            events = (*waited.events, *news.events) if isinstance(news, News) else waited.events
            cursor = news.cursor if isinstance(news, News) and news.events else cursor
            self._followed[handle] = cursor
            return Report(handle, events, cursor)
        self._followed[handle] = cursor
        if handle in self._ends:
            self._gone.add(handle)
            return Report(handle, self._ends[handle], cursor, gone=True)
        if isinstance(news, OSError):
            if is_damage(news):
                self.suspects[handle] = word_damage(news)
            else:
                self.read_again(handle)
        elif unknown and handle not in self._again and handle not in self._left:
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


def _read(reading: Mapping[str, tuple[LaunchFiles, str]]) -> dict[str, News | OSError]:
    """The news of each launch, or the error of reading it."""
    news: dict[str, News | OSError] = {}
    for handle, (place, cursor) in reading.items():
        try:
            news[handle] = read_news(place, cursor)
        except OSError as error:
            if is_shortage(error):
                raise
            news[handle] = error
    return news
