"""How far the machine's clock was set: the wall clock, compared with the time that has passed since boot.

A wall clock may be set by hours while jobs run; CLOCK_BOOTTIME never is. NTP slows both down and speeds both up alike,
so the distance between them changes only when the wall clock is set.
"""

from __future__ import annotations

import time

SMALLEST_JUMP = 1.0
"""A smaller change says nothing to delays and limits, which are whole seconds."""
_QUICK = 0.05
_TRIES = 5


class JumpDetector:
    """Remembers the distance between the two clocks."""

    def __init__(self) -> None:
        self.distance, _ = _measure()
        """The wall clock less the time since boot, in seconds, as it was last told."""

    def take_jump(self) -> float:
        """Seconds by which the wall clock was set since this was last told; 0.0 where it was not."""
        distance, error = _measure()
        seconds = distance - self.distance
        if abs(seconds) < SMALLEST_JUMP + error:
            return 0.0
        self.distance = distance
        return seconds


def _measure() -> tuple[float, float]:
    """The wall clock less the time since boot, and how wrong that may be: this process may pause between two looks."""
    best = (0.0, float("inf"))
    for _ in range(_TRIES):
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        wall = time.time()
        after = time.clock_gettime(time.CLOCK_BOOTTIME)
        best = min(best, (wall - (before + after) / 2, after - before), key=lambda found: found[1])
        if best[1] < _QUICK:
            break
    return best
