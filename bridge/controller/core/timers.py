"""Named timers on the event loop, for begin times, deadlines and back-offs.

Nothing here is stored: each time is a fact of a job, an outbox row or a cluster's backoff, and is armed again from
there after a restart.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

_STEP = 1.0
"""Seconds; less is no sleep."""


class Timers(Protocol):
    """Calls functions at times on the event loop."""

    def set(self, name: str, at: float, call: Callable[[], None]) -> None:
        """Call the function at that time, seconds since the epoch; soon for a time that has passed."""

    def drop(self, name: str) -> None:
        """Forget the timer, if there is one."""

    def move(self, seconds: float) -> None:
        """The clock was set by so much: what is due stays as far away as it was."""

    def look(self) -> None:
        """See whether time has passed that the event loop does not count, as a machine's sleep."""

    def close(self) -> None:
        """Forget all."""


@dataclass(slots=True)
class _Timer:
    at: float
    call: Callable[[], None]
    handle: asyncio.TimerHandle


class LoopTimers:
    """Timers of the event loop; times are those of a clock."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._timers: dict[str, _Timer] = {}
        self._distance: float | None = None
        """The clock less the event loop's, as it was last seen."""

    def set(self, name: str, at: float, call: Callable[[], None]) -> None:
        """Call the function at that time; a timer of that name is replaced."""
        self.drop(name)
        self._timers[name] = _Timer(at, call, self._arm(name, at))

    def drop(self, name: str) -> None:
        """Forget the timer, if there is one."""
        timer = self._timers.pop(name, None)
        if timer is not None:
            timer.handle.cancel()

    def move(self, seconds: float) -> None:
        """The clock was set by so much: what is due stays as far away as it was."""
        for timer in self._timers.values():
            timer.at += seconds
        if self._distance is not None:
            self._distance += seconds

    def look(self) -> None:
        """Arm all timers anew where the event loop's clock, which stands still while the machine sleeps, is behind."""
        distance = self._clock() - asyncio.get_running_loop().time()
        if self._distance is not None and abs(distance - self._distance) < _STEP:
            return
        self._distance = distance
        for name, timer in self._timers.items():
            timer.handle.cancel()
            timer.handle = self._arm(name, timer.at)

    def close(self) -> None:
        """Forget all."""
        for name in list(self._timers):
            self.drop(name)

    def _arm(self, name: str, at: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(max(0.0, at - self._clock()), self._fire, name)

    def _fire(self, name: str) -> None:
        timer = self._timers[name]
        if timer.at > self._clock():
            # The event loop's clock was ahead, if only by a rounding.
            timer.handle = self._arm(name, timer.at)
            return
        del self._timers[name]
        timer.call()
