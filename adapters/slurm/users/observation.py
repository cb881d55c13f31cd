"""Observes the launches of many users with one call for each user, so that no slow or failed call delays the others."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace

from overspan.adapters.contract import Observation, Report
from overspan.adapters.slurm.users.handles import join_owner
from overspan.bridge.model.errors import OverspanError

log = logging.getLogger(__name__)

LONGEST = 60.0
"""Seconds that one call waits for news, at most."""
REST = 5.0
"""Seconds between a user's failed call and the next try."""

Observe = Callable[[str, Mapping[str, str], float], Awaitable[Observation]]


@dataclass
class UserObservation:
    """A call for a user, from these cursors on."""

    since: Mapping[str, str]
    task: asyncio.Task[Observation]


class UserWatches:
    """Keeps each user's call across observations for as long as that user's cursors stay the same."""

    def __init__(self, observe: Observe) -> None:
        self._observe = observe
        self._calls: dict[str, UserObservation] = {}
        self._failed: dict[str, tuple[float, OverspanError]] = {}
        self._all_failed = self._recovered = False
        """Whether every user's call failed, and whether one has succeeded since then."""
        self._gaps: dict[str, str] = {}

    @property
    def gap(self) -> str:
        """Why the ends of some user's jobs cannot be known at the moment; empty where they can."""
        return next((gap for gap in self._gaps.values() if gap), "")

    async def observe(self, parts: Mapping[str, Mapping[str, str]], timeout: float) -> list[Report]:
        """The news of all users. Raises the error if every user's call failed."""
        deadline = time.monotonic() + timeout
        self._drop(set(self._calls) - set(parts))
        self._gaps = {user: gap for user, gap in self._gaps.items() if user in parts}
        while True:
            for user, since in parts.items():
                self._begin(user, since, deadline)
            calls = {user: self._calls[user] for user in parts if user in self._calls}
            await self._wait([call.task for call in calls.values()], deadline)
            reports = [report for user in calls for report in self._take(user)]
            failed = [self._failed[user][1] for user in parts if user in self._failed]
            if not reports and failed and len(failed) == len(parts):
                self._all_failed = True
                raise failed[0]
            if reports or self._recovered or time.monotonic() >= deadline:
                self._recovered = False
                return reports

    async def close(self) -> None:
        """Cancel all calls."""
        tasks = [call.task for call in self._calls.values()]
        self._drop(set(self._calls))
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, user: str, since: Mapping[str, str], deadline: float) -> None:
        known = self._calls.get(user)
        if known is not None and known.since == since:
            return
        self._drop({user} & set(self._calls))
        if user in self._failed and time.monotonic() - self._failed[user][0] < REST:
            return
        # At the deadline the call still runs, with a timeout of 0: it returns what is known now.
        seconds = max(0.0, deadline - time.monotonic())
        task = asyncio.ensure_future(self._observe(user, since, min(seconds, LONGEST)))
        self._calls[user] = UserObservation(dict(since), task)

    async def _wait(self, tasks: list[asyncio.Task[Observation]], deadline: float) -> None:
        left = max(0.0, deadline - time.monotonic())
        if not tasks:
            await asyncio.sleep(min(left, REST))
        elif left:
            rests = min([left, *(REST for _ in self._failed)])
            await asyncio.wait(tasks, timeout=rests, return_when=asyncio.FIRST_COMPLETED)
        else:
            await asyncio.wait(tasks)

    def _take(self, user: str) -> list[Report]:
        """The reports of a call, if it has ended."""
        call = self._calls[user]
        if not call.task.done():
            return []
        del self._calls[user]
        try:
            found = call.task.result()
        except OverspanError as error:
            self._fail(user, error)
            return []
        except Exception as error:
            log.exception("an observation for %s", user)
            self._fail(user, OverspanError(f"{type(error).__name__}: {error}"))
            return []
        self._failed.pop(user, None)
        before, self._gaps[user] = self.gap, found.gap
        self._recovered, self._all_failed = self._recovered or self._all_failed or self.gap != before, False
        # Reports on launches that were not asked for are dropped.
        own = [report for report in found.reports if report.handle in call.since]
        return [replace(report, handle=join_owner(user, report.handle)) for report in own]

    def _fail(self, user: str, error: OverspanError) -> None:
        if user not in self._failed:
            log.warning("the launches of %s cannot be observed: %s", user, error.message)
        self._failed[user] = time.monotonic(), error

    def _drop(self, users: set[str]) -> None:
        for user in users:
            self._calls.pop(user).task.cancel()
