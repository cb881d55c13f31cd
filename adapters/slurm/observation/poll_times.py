"""When Slurm is asked again: with each tick, and sooner for launches that are young, within a budget. Pure.

Seconds of the monotonic clock throughout.
"""

from __future__ import annotations

from dataclasses import dataclass

RATE = 9 / 60
BURST = 3.0
"""Questions that may be asked at once after a while of few; with RATE they make 12 in any minute."""
EARLY_LOOKS = (1.0, 2.0, 4.0)
"""After how long a launch is looked at that waits, or was ordered about: most start, or end, at once or much later."""
SHORT = 60.0
"""A job that runs is looked at sooner for so long: what ends then is what somebody tries out."""
SHORT_STEP = 5.0


@dataclass(frozen=True)
class LaunchAge:
    """Since when a launch is watched, is known to run, and has its last order; None: it waits, or has none."""

    watched: float
    running: float | None = None
    ordered: float | None = None

    def find_next_look(self, looked: float) -> float | None:
        """When it is to be looked at next after a look; None: with the tick."""
        begun = [self.ordered, self.watched if self.running is None else None]
        times = [since + seconds for since in begun if since is not None for seconds in EARLY_LOOKS]
        if self.running is not None and looked + SHORT_STEP <= self.running + SHORT:
            times.append(looked + SHORT_STEP)
        return min((time for time in times if time > looked), default=None)


class QueryBudget:
    """How many questions may be asked: a token bucket, which those of each tick draw from too."""

    def __init__(self) -> None:
        self._tokens = BURST
        self._at = 0.0

    def take(self, now: float) -> None:
        """A question is asked, whether the budget has it or not."""
        self._tokens = max(0.0, self._count(now) - 1)
        self._at = now

    def find_time(self, now: float) -> float:
        """When one more may be asked."""
        return now + max(0.0, 1 - self._count(now)) / RATE

    def _count(self, now: float) -> float:
        return min(BURST, self._tokens + (now - self._at) * RATE)
