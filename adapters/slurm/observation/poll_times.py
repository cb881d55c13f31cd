"""When to poll Slurm: each tick, and sooner for young launches as far as a token bucket allows. Pure.

All times are seconds of the monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass

RATE = 9 / 60
"""Tokens per second that flow into the bucket."""
BURST = 3.0
"""Capacity of the token bucket, in queries; with RATE it allows 12 in any minute."""
EARLY_LOOKS = (1.0, 2.0, 4.0)
"""Seconds after a submission or an order at which Slurm is queried: most jobs react at once or much later."""
SHORT = 60.0
"""Seconds from its start for which a job is queried each SHORT_STEP: jobs this short are trials, and users wait."""
SHORT_STEP = 5.0


@dataclass(frozen=True)
class LaunchAge:
    """Since when a launch is watched and runs (None: it waits), and when its last order was (None: no order)."""

    watched: float
    running: float | None = None
    ordered: float | None = None

    def find_next_look(self, looked: float) -> float | None:
        """When the next extra look is due after the one at `looked`; None: the tick is enough."""
        begun = [self.ordered, self.watched if self.running is None else None]
        times = [since + seconds for since in begun if since is not None for seconds in EARLY_LOOKS]
        if self.running is not None and looked + SHORT_STEP <= self.running + SHORT:
            times.append(looked + SHORT_STEP)
        return min((time for time in times if time > looked), default=None)


class QueryBudget:
    """Token bucket for queries; the query of each tick takes a token too."""

    def __init__(self) -> None:
        self._tokens = BURST
        self._at = 0.0

    def take(self, now: float) -> None:
        """Take the token of a query; an empty bucket stays empty."""
        self._tokens = max(0.0, self._count(now) - 1)
        self._at = now

    def find_time(self, now: float) -> float:
        """When there is a token for one more query."""
        return now + max(0.0, 1 - self._count(now)) / RATE

    def _count(self, now: float) -> float:
        return min(BURST, self._tokens + (now - self._at) * RATE)
