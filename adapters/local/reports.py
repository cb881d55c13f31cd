"""Who is owed which news: what `observe` answers, each event once for each way from cursor to cursor."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping

from overspan.adapters.contract import Report
from overspan.adapters.local import launches
from overspan.adapters.local.journals import News
from overspan.adapters.local.launches import Run
from overspan.adapters.local.rundir import RunDirectory, parse_handle
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, LaunchLost, Queued


class Reports:
    """Keeps which launches have something new, so that asking costs little while nothing is."""

    def __init__(self, root: str, runs: Mapping[str, Run]) -> None:
        self._root = root
        self._runs = runs
        self._followed: dict[str, str] = {}
        self._dirty: set[str] = set()
        self._untold: set[str] = set()
        self._gone: set[str] = set()
        self.fresh = asyncio.Event()

    def mark(self, handle: str) -> None:
        """A launch's files have grown."""
        self._dirty.add(handle)
        self.fresh.set()

    def set_reason(self, run: Run, reason: str, starts_by: float | None = None) -> None:
        """A waiting launch waits for this reason, and starts at the latest then."""
        if (run.reason, run.starts_by) != (reason, starts_by):
            run.reason, run.starts_by = reason, starts_by
            self._untold.add(run.handle)
            self.fresh.set()

    def repeat_gone(self) -> None:
        """Tell again of launches without a trace; whoever took note does not ask for them any more."""
        if self._gone:
            self._dirty |= self._gone
            self.fresh.set()

    async def collect(self, since: dict[str, str]) -> list[Report]:
        """The reports that are there now. Nothing counts as told when the caller is cancelled meanwhile."""
        if len(self._followed) > 2 * len(since) + 1000:
            self._prune(since)
        self._gone &= since.keys()
        unread = {handle for handle, _ in since.items() - self._followed.items()} | (self._dirty & since.keys())
        self._dirty -= unread
        places = {handle: parse_handle(self._root, handle) for handle in unread}
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
        for handle, (told, exists) in news.items():
            report = self._make(reading[handle], told, exists)
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

    def _make(self, asked: tuple[RunDirectory, str], news: News, exists: bool) -> Report | None:
        place, cursor = asked
        handle = place.handle
        if news.more:
            self._dirty.add(handle)
        if news.events:
            self._followed[handle] = news.cursor
            return Report(handle, news.events, news.cursor)
        self._followed[handle] = cursor
        if exists or handle in self._runs:
            return None
        self._gone.add(handle)
        lost = LaunchLost(time.time(), place.launch, Cause.NODE.value, f"{place.folder} is gone")
        return Report(handle, (lost,), cursor, gone=True)

    def _add_reason(self, found: dict[str, Report], handle: str, cursor: str) -> None:
        run = self._runs.get(handle)
        if run is None or run.booking is not None or run.held:
            return
        events: tuple[Event, ...] = (Queued(time.time(), run.reason, run.starts_by),)
        earlier = found.get(handle)
        if earlier is not None:
            events, cursor = (*earlier.events, *events), earlier.cursor
        found[handle] = Report(handle, events, cursor)


def _is_quiet(run: Run) -> bool:
    """Whether a launch has no file that could tell anything."""
    return run.booking is None and not run.noted


def _read(reading: Mapping[str, tuple[RunDirectory, str]]) -> dict[str, tuple[News, bool]]:
    news = launches.read_all(reading)
    return {
        handle: (told, bool(told.events) or os.path.exists(reading[handle][0].plan)) for handle, told in news.items()
    }
