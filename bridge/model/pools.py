"""Pools: workers that are kept warm, and the jobs that are theirs."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.records import NamedTuple, dataclass, replace

POOL_KIND = "pool"
"""The kind of cluster that a pool is."""


class WorkerClass(NamedTuple):
    """Workers of one kind: `low` to `high` of them. Of classes that could be started the one of most `weight` is."""

    name: str
    low: int
    high: int
    weight: float = 1.0


@dataclass(frozen=True)
class PoolSize:
    """How many workers a pool has: `low` to `high`, by the jobs that wait.

    More than `threshold` - 1 waiting jobs for `up_delay` seconds call for more workers; one that was idle for `idle`
    seconds is ended. Where low and high are the same, the number is fixed. `classes` are empty where all workers are
    alike.
    """

    low: int
    high: int
    threshold: int = 1
    up_delay: float = 0.0
    idle: float = 600.0
    classes: tuple[WorkerClass, ...] = ()

    @property
    def every_class(self) -> tuple[WorkerClass, ...]:
        """The classes; where all workers are alike, the one without a name."""
        return self.classes or (WorkerClass("", self.low, self.high),)

    @property
    def fixed(self) -> bool:
        """Whether the number of workers of each class is always the same."""
        return all(each.low == each.high for each in self.every_class)


def check_size(size: PoolSize) -> Optional[str]:
    """Why the numbers of a pool and of its classes contradict each other; None where they do not."""
    for each in size.classes:
        if each.high < each.low:
            return f"max_workers {each.high} of the class {each.name} is below its min_workers {each.low}"
    least, most = (sum(numbers) for numbers in zip(*((each.low, each.high) for each in size.every_class)))
    if not size.classes:
        return f"max_workers {size.high} is below min_workers {size.low}" if size.high < size.low else None
    if size.high < least:
        return f"max_workers {size.high} of the pool is below {least}, the min_workers of its classes together"
    if size.low > most:
        return f"min_workers {size.low} of the pool is above {most}, the max_workers of its classes together"
    return f"max_workers {size.high} is below min_workers {size.low}" if size.high < size.low else None


def resize_class(size: PoolSize, name: str, low: int, high: int) -> PoolSize:
    """The size with other numbers of a class. Numbers of the pool that were those of its classes together stay so."""
    classes = tuple(each._replace(low=low, high=high) if each.name == name else each for each in size.classes)
    before, after = (
        (sum(each.low for each in known), sum(each.high for each in known)) for known in (size.classes, classes)
    )
    return replace(
        size,
        classes=classes,
        low=after[0] if size.low == before[0] else size.low,
        high=after[1] if size.high == before[1] else size.high,
    )


class WorkerLife(NamedTuple):
    """When a worker's time limit ends it (`ends_at`), and from when another one is to take its place."""

    ends_at: float
    renew_at: float

    def holds(self, seconds: Optional[int], now: float) -> bool:
        """Whether a job that may take so long ends before the worker; one without a limit is for a worker's youth."""
        return now < self.renew_at if seconds is None else now + seconds <= self.ends_at


UNKNOWN_LIFE = WorkerLife(float("-inf"), float("-inf"))
"""Of a worker whose end is not known, so it may end at any moment: it is given no job."""
RENEWED_PART, MOST_RENEWED = 0.2, 1800.0
"""The last part of a worker's time, and the most seconds of it, in which another one is started."""


def plan_life(granted_at: float, limit: float) -> WorkerLife:
    """The life of a worker that has so many seconds since its allocation began."""
    ends_at = granted_at + limit
    return WorkerLife(ends_at, ends_at - min(RENEWED_PART * limit, MOST_RENEWED))


@dataclass(frozen=True)
class WorkerOf:
    """In the spec of a job that is a worker: its pool, which version of the pool's file it is of, and its class.

    `mailbox`: it cannot connect to the daemon, which visits its mailbox.
    """

    pool: str
    generation: int
    worker_class: str = ""
    mailbox: bool = False


def check_pool_name(name: str, what: str = "pool") -> Optional[str]:
    """Why a text cannot name a pool, or a class; None where it can: it is part of paths and of host names."""
    allowed = set("abcdefghijklmnopqrstuvwxyz0123456789-")
    if not name or len(name) > 40 or not set(name) <= allowed or name[0] == "-" or name[-1] == "-":
        return f"a {what}'s name has lower-case letters, digits and '-', 40 at most"
    return None
