"""Times at which something is due: begin times, deadlines, backoffs. One timer a name.

Nothing here is stored: each time is a fact of a job, an outbox row or a cluster's backoff, and is armed again from
there after a restart.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from apscheduler.schedulers.asyncio import AsyncIOScheduler

FARTHEST = 253402214400.0
"""The last day of the year 9999, the farthest that a date can be."""


class Timers(Protocol):
    """Calls functions at times on the event loop."""

    def set(self, name: str, at: float, call: Callable[[], None]) -> None:
        """Call the function at that time, seconds since the epoch; at once for a time that has passed."""

    def drop(self, name: str) -> None:
        """Forget the timer, if there is one."""

    def close(self) -> None:
        """Forget all."""


class ScheduledTimers:
    """Timers kept by APScheduler, which is loaded with the first one: an idle daemon needs none."""

    def __init__(self) -> None:
        self._scheduler: AsyncIOScheduler | None = None
        self._calls: dict[str, Callable[[], None]] = {}

    def set(self, name: str, at: float, call: Callable[[], None]) -> None:
        """Call the function at that time; a timer of that name is replaced."""
        scheduler = self._scheduler or self._start()
        when = datetime.datetime.fromtimestamp(min(max(at, 0.0), FARTHEST), datetime.UTC)
        self._calls[name] = call
        scheduler.add_job(
            self._ring,
            "date",
            run_date=when,
            args=(name, call),
            id=name,
            replace_existing=True,
            misfire_grace_time=None,
        )

    def drop(self, name: str) -> None:
        """Forget the timer, if there is one."""
        if self._calls.pop(name, None) is not None and self._scheduler is not None and self._scheduler.get_job(name):
            self._scheduler.remove_job(name)

    def close(self) -> None:
        """Forget all."""
        if self._scheduler is not None:
            self._scheduler.shutdown(wait=False)
            self._scheduler = None
        self._calls.clear()

    def _start(self) -> AsyncIOScheduler:
        from apscheduler.schedulers.asyncio import AsyncIOScheduler

        self._scheduler = AsyncIOScheduler(timezone=datetime.UTC)
        self._scheduler.start()
        return self._scheduler

    async def _ring(self, name: str, call: Callable[[], None]) -> None:
        # A coroutine, so that the scheduler runs it on the event loop and not in a thread. Between its being due and
        # here the timer may have been dropped or set anew.
        if self._calls.get(name) is call:
            del self._calls[name]
            call()
