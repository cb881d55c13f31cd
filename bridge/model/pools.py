"""Pools: workers that are kept warm, and the jobs that are theirs."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.records import dataclass

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
