"""Array throttles: limits how many launches of an array are in the queue or hold resources. Pure.

The others are parked outside of the queue, so that they block no other job. Launches enter the queue in the order of
their ranks; a change of rank or throttle may park a launch again that has no resources yet.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

from overspan.adapters.local.queue.booking import WaitingQueue
from overspan.bridge.model.ranks import Rank


class Moves(NamedTuple):
    """What `ThrottledQueue.settle` changed: launches that entered the queue, and launches that were parked."""

    admitted: tuple[str, ...] = ()
    parked: tuple[str, ...] = ()


class _Array:
    """The launches of one array."""

    def __init__(self) -> None:
        self.limit: int | None = None
        self.started: set[str] = set()
        self.waiting = WaitingQueue()
        self.inside: set[str] = set()
        """Waiting launches that are in the queue."""
        self.fresh: set[str] = set()
        """Waiting launches that were not yet reported as admitted or parked."""
        self.unsaid: set[str] = set()
        """Parked launches of which it was not yet said what holds them."""
        self.was_full = False

    @property
    def full(self) -> bool:
        """Whether as many hold resources as may."""
        return self.limit is not None and len(self.started) >= self.limit

    def settle(self) -> tuple[set[str], set[str]]:
        """Apply the throttle; returns which launches enter the queue and which are parked."""
        allowance = None if self.limit is None else max(0, self.limit - len(self.started))
        allowed = set(itertools.islice(self.waiting, allowance))
        admitted = allowed - self.inside
        parked = (self.inside | self.fresh) - allowed
        self.inside = allowed
        self.fresh.clear()
        self.unsaid = (self.unsaid | parked) - allowed
        return admitted, parked

    def list_parked(self) -> set[str]:
        """The parked launches that are new, or all where the throttle has come into force or holds no longer."""
        told = set(self.waiting) - self.inside - self.fresh if self.full != self.was_full else self.unsaid
        self.was_full, self.unsaid = self.full, set()
        return told

    def forget(self, key: str) -> None:
        """Remove a launch from the array."""
        self.started.discard(key)
        self.inside.discard(key)
        self.fresh.discard(key)
        self.unsaid.discard(key)
        self.waiting.remove(key)

    def __bool__(self) -> bool:
        return bool(self.started) or len(self.waiting) > 0


class ThrottledQueue:
    """The queue behind the arrays' throttles. A launch is new, waits, or has started; its rank names its array.

    Changes of arrays' launches take effect with the next `settle`; the head is valid only after it.
    """

    def __init__(self) -> None:
        self._queue = WaitingQueue()
        self._ranks: dict[str, Rank] = {}
        """Ranks of arrays' launches."""
        self._arrays: dict[int, _Array] = {}
        self._touched: set[int] = set()
        self._changed: set[int] = set()
        """Arrays of whose parked launches something may have to be said."""

    def __contains__(self, key: str) -> bool:
        """Whether a launch is in the queue."""
        return key in self._queue

    @property
    def head(self) -> str:
        """The first launch in the queue; empty when there is none."""
        return self._queue.head

    def add(self, key: str, rank: Rank, limit: int | None = None) -> None:
        """Add a waiting launch, or move it to another rank; `limit` is its array's, used if the array is new."""
        if rank.element < 0:
            self._queue.add(key, rank)
            return
        known = rank.job in self._arrays
        array = self._touch(key, rank)
        if not known:
            array.limit = limit
        array.started.discard(key)
        if key not in array.waiting:
            array.fresh.add(key)
        array.waiting.add(key, rank)
        if key in self._queue:
            self._queue.add(key, rank)

    def start(self, key: str, rank: Rank) -> None:
        """Note that a launch has resources, even if that exceeds the throttle."""
        self._queue.remove(key)
        if rank.element >= 0:
            array = self._touch(key, rank)
            array.forget(key)
            array.started.add(key)

    def remove(self, key: str) -> None:
        """Remove a launch, which neither waits nor has resources any more."""
        self._queue.remove(key)
        rank = self._ranks.pop(key, None)
        if rank is None:
            return
        array = self._arrays[rank.job]
        array.forget(key)
        self._touched.add(rank.job)
        self._changed.add(rank.job)
        if not array:
            # The throttle goes with it: the array's next launch comes with its own.
            del self._arrays[rank.job]

    def set_limit(self, number: int, limit: int | None) -> None:
        """Set the throttle of an array that has launches here; None for no limit."""
        array = self._arrays.get(number)
        if array is not None and array.limit != limit:
            array.limit = limit
            self._touched.add(number)
            self._changed.add(number)

    def settle(self) -> Moves:
        """Apply all changes: admit launches to the queue, and park those above their throttle."""
        admitted: list[str] = []
        parked: list[str] = []
        for number in self._touched & self._arrays.keys():
            entering, leaving = self._arrays[number].settle()
            for key in leaving:
                self._queue.remove(key)
            for key in entering:
                self._queue.add(key, self._ranks[key])
            admitted += entering
            parked += leaving
        self._touched.clear()
        return Moves(tuple(admitted), tuple(parked))

    def list_parked(self) -> Iterator[tuple[str, bool]]:
        """Parked launches of which something new is to be said: whether the throttle holds them.

        Else they stand behind launches of their array that wait for resources.
        """
        for number in self._changed & self._arrays.keys():
            array = self._arrays[number]
            yield from ((key, array.full) for key in array.list_parked())
        self._changed.clear()

    def _touch(self, key: str, rank: Rank) -> _Array:
        self._ranks[key] = rank
        self._touched.add(rank.job)
        self._changed.add(rank.job)
        return self._arrays.setdefault(rank.job, _Array())
