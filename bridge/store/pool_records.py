"""Records of pools, which the store takes and returns; used by the controller. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.bridge.model.pools import PoolSize

CANCEL, REQUEUE = "cancel", "requeue"
"""What becomes of the jobs of a pool that is deleted."""


@dataclass(frozen=True)
class PoolFacts:
    """A pool as it is wanted.

    `generation` grows with each change of its file that needs new workers. `wanted` is the present number of workers
    between those of `size`. Workers that are `closed` take no more jobs, and end when they hold none. `failures` counts
    the workers in a row that ended before they were ready. `ending` is what becomes of the jobs, for a pool that is
    deleted.
    """

    size: PoolSize
    created_at: float
    generation: int = 1
    wanted: int = 0
    closed: tuple[int, ...] = ()
    failures: int = 0
    message: str = ""
    ending: str = ""


@dataclass(frozen=True)
class StoredPool:
    """A pool, and the submission of its file, as JSON data."""

    name: str
    version: int
    user: str
    facts: PoolFacts
    request: Mapping[str, Any] = field(default_factory=dict)
