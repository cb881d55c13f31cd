"""Pools: workers that are kept warm, and the jobs that are theirs."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.records import NamedTuple, dataclass

POOL_KIND = "pool"
"""The kind of cluster that a pool is."""


@dataclass(frozen=True)
class PoolSize:
    """How many workers a pool has: `low` to `high`, by the jobs that wait.

    More than `threshold` - 1 waiting jobs for `up_delay` seconds call for more workers; one that was idle for `idle`
    seconds is ended. Where low and high are the same, the number is fixed.
    """

    low: int
    high: int
    threshold: int = 1
    up_delay: float = 0.0
    idle: float = 600.0


class WorkerLife(NamedTuple):
    """When a worker's time limit ends it (`ends_at`), and from when another one is to take its place."""

    ends_at: float
    renew_at: float

    def holds(self, seconds: Optional[int], now: float) -> bool:
        """Whether a job that may take so long ends before the worker; one without a limit is for a worker's youth."""
        return now < self.renew_at if seconds is None else now + seconds <= self.ends_at


UNKNOWN_LIFE = WorkerLife(float("-inf"), float("-inf"))
"""Of a worker that may end at any moment, as far as anybody knows: it holds no job."""
RENEWED_PART, MOST_RENEWED = 0.2, 1800.0
"""The last part of a worker's time, and the most seconds of it, in which another one is started."""


def plan_life(granted_at: float, limit: float) -> WorkerLife:
    """The life of a worker that has so many seconds since its allocation began."""
    ends_at = granted_at + limit
    return WorkerLife(ends_at, ends_at - min(RENEWED_PART * limit, MOST_RENEWED))


@dataclass(frozen=True)
class WorkerOf:
    """In the spec of a job that is a worker: its pool, and which version of the pool's file it is of."""

    pool: str
    generation: int


def check_pool_name(name: str) -> Optional[str]:
    """Why a text cannot name a pool; None where it can: it is part of paths and of host names."""
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    if not name or len(name) > 40 or not set(name) <= allowed or name[0] == "-" or name[-1] == "-":
        return "a pool's name has lower-case letters, digits and '-', 40 at most"
    return None
