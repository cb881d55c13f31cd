"""Records of pools, which the store takes and returns; used by the controller. Times are seconds since the epoch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from overspan.bridge.model.pools import PoolSize

CANCEL, REQUEUE = "cancel", "requeue"
"""What becomes of the jobs of a pool that is deleted."""


@dataclass(frozen=True)
class ClassFacts:
    """Workers of one class as they are wanted: `wanted` is their present number.

    `since` is the generation of the pool's file from which on they are as the file says now. `failures` counts the
    workers in a row that ended before they were ready, and `message` says how the last one did.
    """

    since: int = 1
    wanted: int = 0
    failures: int = 0
    message: str = ""


@dataclass(frozen=True)
class PoolFacts:
    """A pool as it is wanted.

    `generation` grows with each change of its file that needs new workers. Workers that are `closed` take no more jobs,
    and end when they hold none. `ending` is what becomes of the jobs, for a pool that is deleted. `classes` has each
    class by its name, which is empty where all workers are alike.
    """

    size: PoolSize
    created_at: float
    generation: int = 1
    closed: tuple[int, ...] = ()
    ending: str = ""
    classes: Mapping[str, ClassFacts] = field(default_factory=dict)

    def of(self, worker_class: str) -> ClassFacts:
        """The facts of a class; those of none where the pool has it no more."""
        return self.classes.get(worker_class, ClassFacts())

    def with_class(self, worker_class: str, facts: ClassFacts) -> PoolFacts:
        """The facts with others of a class."""
        return replace(self, classes={**self.classes, worker_class: facts})

    @property
    def message(self) -> str:
        """What is wrong with the classes."""
        told = {
            (f"{name}: " if name else "") + each.message: None for name, each in self.classes.items() if each.message
        }
        return "; ".join(told)

    @property
    def wanted(self) -> int:
        """How many workers there are to be."""
        return sum(each.wanted for each in self.classes.values())


@dataclass(frozen=True)
class StoredPool:
    """A pool, and the submission of its file, as JSON data."""

    name: str
    version: int
    user: str
    facts: PoolFacts
    request: Mapping[str, Any] = field(default_factory=dict)
