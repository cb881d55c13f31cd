"""How many workers each class of a pool is to have: within its own numbers, and all together within the pool's. Pure.

The numbers that were wanted before stay, except where the file's numbers, the queue or idle workers change them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from overspan.bridge.model.pools import PoolSize, WorkerClass

Waiting = Mapping[tuple[str, ...], int]
"""How many jobs wait, by the classes that they fit."""


class ClassCounts(NamedTuple):
    """The workers of a class that take jobs: how many were wanted, are there, hold jobs, are ready, idle for too long.

    A `barred` class gives no more workers now, as far as is known. One that is `again` tried was barred, and has given
    none since.
    """

    numbers: WorkerClass
    wanted: int
    there: int
    busy: int = 0
    ready: int = 0
    idle: int = 0
    barred: bool = False
    again: bool = False


@dataclass
class _ClassNumber:
    """A class while its number is chosen. `taken` are the workers that jobs of the queue are to have."""

    counts: ClassCounts
    number: int
    taken: int = 0
    needed: bool = False
    """Whether jobs wait that fit it."""

    @property
    def free(self) -> int:
        """Workers for further jobs; of a barred class those that are ready."""
        known = min(self.number, self.counts.ready) if self.counts.barred else self.number
        return max(0, known - self.counts.busy - self.taken)

    @property
    def unclaimed(self) -> int:
        """Workers for further jobs, those included that a barred class may give at last."""
        return max(0, self.number - self.counts.busy - self.taken)

    @property
    def begun(self) -> bool:
        """Whether it has workers, or is to have some; of a barred class those count that are ready."""
        return bool(self.counts.ready if self.counts.barred else self.counts.there or self.number)

    @property
    def spare(self) -> int:
        """Workers that another class may have in its place: beyond its lowest number, and without a job."""
        return max(0, self.number - max(self.counts.numbers.low, self.counts.busy + self.taken))

    @property
    def room(self) -> int:
        """Workers that it may have more."""
        return max(0, self.counts.numbers.high - self.number)

    def take(self, count: int, workers: int) -> int:
        """Let so many workers have some of the jobs; how many jobs are left."""
        taken = min(count, workers)
        self.taken += taken
        return count - taken


def choose_numbers(size: PoolSize, counts: Mapping[str, ClassCounts], waiting: Waiting, *, due: bool) -> dict[str, int]:
    """The number of workers of each class. `due`: the queue is too long for long enough to call for more.

    All that is missing comes at once: each step would cost the start of a worker. A class of more weight has them
    first, one that is barred last. Where the pool has as many as it may, classes without work for theirs give them up.
    """
    found = {
        name: _ClassNumber(each, min(max(each.wanted, each.numbers.low), each.numbers.high))
        for name, each in counts.items()
    }
    ordered = sorted(found.values(), key=lambda each: (each.counts.barred, -each.counts.numbers.weight))
    _fit_pool(size, ordered)
    _serve_queue(size, ordered, waiting, due)
    _end_idle(size, ordered)
    return {name: each.number for name, each in found.items()}


def _fit_pool(size: PoolSize, ordered: Sequence[_ClassNumber]) -> None:
    """Bring the numbers of all together between those of the pool."""
    missing = size.low - _total(ordered)
    for each in ordered:
        more = min(max(0, missing), each.room)
        each.number += more
        missing -= more
    _give_up(ordered, _total(ordered) - size.high)
    for each in reversed(ordered):
        # Those that hold jobs, too: they take no more.
        each.number -= min(max(0, _total(ordered) - size.high), each.number - each.counts.numbers.low)


def _give_up(ordered: Sequence[_ClassNumber], surplus: int) -> int:
    """Take workers from classes that can spare some, those of least weight first; how many came of it."""
    left = max(0, surplus)
    for each in reversed(ordered):
        less = min(left, each.spare)
        each.number -= less
        left -= less
    return max(0, surplus) - left


def _serve_queue(size: PoolSize, ordered: Sequence[_ClassNumber], waiting: Waiting, due: bool) -> None:
    """Give each waiting job a worker that is free, or a new one.

    Those that fit the fewest classes choose first, then those that fit one of more weight.
    """
    groups = [
        ([place for place, each in enumerate(ordered) if each.counts.numbers.name in fitting], count)
        for fitting, count in waiting.items()
        if count
    ]
    unserved = []
    for places, count in sorted(groups, key=lambda group: (len(group[0]), group[0])):
        able = [ordered[place] for place in places]
        begun = any(each.begun for each in able)
        for each in able:
            each.needed = True
            count = each.take(count, each.free)
        if due or not begun:
            unserved.append((able, count))
    for able, count in unserved:
        barred = [each for each in able if each.counts.barred]
        for each in able:
            if not each.counts.barred:
                count = _add(size, ordered, each, count)
        # What is on its way there, before more of it.
        for each in barred:
            count = each.take(count, each.unclaimed)
        for each in barred:
            count = _add(size, ordered, each, count)


def _add(size: PoolSize, ordered: Sequence[_ClassNumber], chosen: _ClassNumber, count: int) -> int:
    """Let a class have more workers for so many jobs, where the pool is full in place of others'; how many are left."""
    more = min(count, chosen.room)
    free = min(more, max(0, size.high - _total(ordered)))
    lacking = more - free
    if chosen.counts.again:
        # One is enough to see whether its cluster gives any.
        lacking = min(lacking, max(0, 1 - chosen.number - free))
    more = free + _give_up([each for each in ordered if each is not chosen], lacking)
    chosen.number += more
    chosen.taken += more
    return count - more


def _end_idle(size: PoolSize, ordered: Sequence[_ClassNumber]) -> None:
    """Do without the workers that were idle for too long, where no job waits for such.

    Where one idles, those that are missing or on their way are not needed either; nor are those of a barred class.
    """
    if size.fixed:
        return
    for each in reversed(ordered):
        if each.needed or not (each.counts.idle or each.counts.barred):
            continue
        least = max(each.counts.numbers.low, each.counts.ready - each.counts.idle)
        surplus = min(each.number - least, _total(ordered) - size.low)
        each.number -= max(0, surplus)


def _total(classes: Sequence[_ClassNumber]) -> int:
    return sum(each.number for each in classes)
