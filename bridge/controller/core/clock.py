"""The daemon's clock: wall time that advances with CLOCK_BOOTTIME, and takes over jumps only on demand.

Delays, limits and back-offs use it. When the machine's clock is set, nothing changes until `take_jump` returns by how
much; its caller then shifts all due times, except those that follow the calendar.
"""

from __future__ import annotations

import time

from overspan.bridge.runtime.core.clock_jumps import JumpDetector


class DaemonClock:
    """Seconds since the epoch."""

    def __init__(self) -> None:
        self._wall = JumpDetector()

    def __call__(self) -> float:
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._wall.distance

    def take_jump(self) -> float:
        """Seconds by which the wall clock was set since this was last told, which this clock shows from now on."""
        return self._wall.take_jump()


def describe_jump(seconds: float) -> str:
    """What is said in the daemon's log of a clock that was set."""
    way = "forward" if seconds > 0 else "back"
    return (
        f"this machine's clock was set {way} by {abs(seconds):.0f} s: delays and limits go on unchanged;"
        " begin times, deadlines and schedules follow the clock"
    )
