"""Clock jumps: detects that the wall clock was set, by comparing it with CLOCK_BOOTTIME.

The wall clock may be set by hours while jobs run; CLOCK_BOOTTIME never is. NTP slews both alike, so their difference
changes only when the wall clock is set.
"""

from __future__ import annotations

import time

SMALLEST_JUMP = 1.0
"""Smaller jumps do not matter to delays and limits, which are whole seconds."""
_QUICK = 0.05
_TRIES = 5


class JumpDetector:
    """Remembers the difference between the two clocks."""

    def __init__(self) -> None:
        self.distance, _ = _measure()
        """The wall clock minus the time since boot, in seconds, at the last call."""

    def take_jump(self) -> float:
        """Seconds by which the wall clock was set since the last call; 0.0 if it was not."""
        distance, error = _measure()
        seconds = distance - self.distance
        if abs(seconds) < SMALLEST_JUMP + error:
            return 0.0
        self.distance = distance
        return seconds


def _measure() -> tuple[float, float]:
    """The wall clock minus the time since boot, and its error: this process may pause between two readings."""
    best = (0.0, float("inf"))
    for _ in range(_TRIES):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        wall = time.time()
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        best = min(best, (wall - (before + after) / 2, after - before), key=lambda found: found[1])
        if best[1] < _QUICK:
            break
    return best
