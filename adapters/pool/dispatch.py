"""Dispatch: which waiting launch goes to which worker. Pure.

By priority, then first come. A launch that fits nowhere now does not hold back others that ask for something else, so
that small jobs fill what a large one cannot use. One that waits longer than `starve_after` has a worker kept for it.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import NamedTuple, Protocol

from overspan.adapters.bookings import Booking, Bookings
from overspan.adapters.pool.requests import WorkerRequest, list_members
from overspan.bridge.model.pools import WorkerLife
from overspan.bridge.model.ranks import Rank

STARVE_AFTER = 60.0
"""Seconds after which a launch that fits nowhere has a worker kept for it."""


class QueuedLaunch(Protocol):
    """A launch that waits for a worker: its name, its place in the queue, its request, and since when it waits.

    Its place and its request do not change while it is in the queue.
    """

    @property
    def handle(self) -> str: ...
    @property
    def rank(self) -> Rank: ...
    @property
    def request(self) -> WorkerRequest: ...
    @property
    def task(self) -> str: ...
    @property
    def since(self) -> float: ...


class Assignment(NamedTuple):
    """A launch that goes to a worker now, and what it holds there."""

    handle: str
    worker: str
    booking: Booking


class PoolQueue:
    """The waiting launches, by what they ask for: all that ask for the same fit, or do not, alike."""

    def __init__(self) -> None:
        self._lines: dict[WorkerRequest, list[QueuedLaunch]] = {}
        self._requests: dict[WorkerRequest, WorkerRequest] = {}
        self._features: Counter[str] = Counter()

    @property
    def features(self) -> frozenset[str]:
        """What launches that wait need a worker's version to be able to do."""
        return frozenset(self._features)

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def __contains__(self, launch: QueuedLaunch) -> bool:
        return self._find(launch) is not None

    def __iter__(self) -> Iterator[QueuedLaunch]:
        return chain.from_iterable(self._lines.values())

    def share(self, request: WorkerRequest) -> WorkerRequest:
        """The same request as those have it that wait already, so that many launches of one kind keep one."""
        return self._requests.get(request, request)

    def add(self, launch: QueuedLaunch) -> None:
        """Add a launch; one that is there stays as it is."""
        line, own = self._lines.setdefault(launch.request, []), _place(launch)
        place = len(line)
        if line and own <= _place(line[-1]):
            # Most come last, and need no search: a daemon that starts adds all that wait, in their order.
            place = bisect_left(line, own, key=_place)
            if line[place].handle == launch.handle:
                return
        line.insert(place, launch)
        self._requests.setdefault(launch.request, launch.request)
        self._features.update(launch.request.features)

    def remove(self, launch: QueuedLaunch) -> bool:
        """Remove a launch, by the place and the request that it was added with; False if it does not wait."""
        place = self._find(launch)
        if place is None:
            return False
        line = self._lines[launch.request]
        del line[place]
        self._features -= Counter(launch.request.features)
        if not line:
            del self._lines[launch.request], self._requests[launch.request]
        return True

    def _find(self, launch: QueuedLaunch) -> int | None:
        """Where it stands in its line. There is no table by handle: with 100,000 launches it would take 5 MB."""
        line = self._lines.get(launch.request, [])
        place = bisect_left(line, _place(launch), key=_place)
        return place if place < len(line) and line[place].handle == launch.handle else None

    def lines(self) -> list[list[QueuedLaunch]]:
        """One line for each request, in the order of the queue."""
        return list(self._lines.values())


def _place(launch: QueuedLaunch) -> tuple[Rank, str]:
    return launch.rank, launch.handle


class WorkerRoom(NamedTuple):
    """What a worker has and holds, its life where that has an end, and what its version can do."""

    room: Bookings
    life: WorkerLife | None = None
    features: frozenset[str] = frozenset()

    def can_run(self, request: WorkerRequest, now: float) -> bool:
        """Whether it lives long enough for a request, and its version can do what that needs."""
        return (self.life is None or self.life.holds(request.seconds, now)) and request.features <= self.features


def assign(
    queue: PoolQueue, workers: Mapping[str, WorkerRoom], now: float, starve_after: float = STARVE_AFTER
) -> list[Assignment]:
    """What starts where now; neither the queue nor the bookings of the workers are changed."""
    found: list[Assignment] = []
    tried = {name: worker.room.copy() for name, worker in workers.items()}
    heads = [(_place(line[0]), place, line) for place, line in enumerate(queue.lines())]
    heapq.heapify(heads)
    begun = [0] * len(heads)
    while heads and tried:
        _, place, line = heapq.heappop(heads)
        launch = line[begun[place]]
        lasting = {name: room for name, room in tried.items() if workers[name].can_run(launch.request, now)}
        chosen = _choose_worker(launch, lasting)
        if chosen is None:
            if now - launch.since >= starve_after:
                kept = _choose_kept(launch, lasting)
                tried.pop(kept, None)
            continue
        found.append(Assignment(launch.handle, chosen, _book(launch, tried[chosen])))
        begun[place] += 1
        if begun[place] < len(line):
            heapq.heappush(heads, (_place(line[begun[place]]), place, line))
    return found


def _choose_worker(launch: QueuedLaunch, rooms: Mapping[str, Bookings]) -> str | None:
    """The fullest worker with room for the launch, by its preferred alternative that fits anywhere."""
    for number in range(launch.request.alternatives):
        fitting = [
            (_measure_left(room), name)
            for name, room in rooms.items()
            if room.fits([list_members(launch.request, launch.task, room.capacity)[number]])
        ]
        if fitting:
            return min(fitting)[1]
    return None


def _measure_left(room: Bookings) -> tuple[int, int, int]:
    """What is free: the scarce things first, so that jobs without GPUs leave the workers that have some."""
    capacity = room.capacity
    gpus = len(capacity.gpus) * 1000 - room.gpu_milli
    return gpus, capacity.cpu_milli - room.cpu_milli, capacity.memory_mib - room.memory_mib


def _book(launch: QueuedLaunch, room: Bookings) -> Booking:
    booking = room.book(launch.handle, list_members(launch.request, launch.task, room.capacity))
    assert booking is not None
    return booking


def _choose_kept(launch: QueuedLaunch, rooms: Mapping[str, Bookings]) -> str:
    """The worker that will have room for the launch with the least to wait for, which gets nothing else; or ''."""
    able = [
        (room.gpu_milli, room.cpu_milli, len(room), name) for name, room in rooms.items() if _is_large(room, launch)
    ]
    return min(able)[-1] if able else ""


def _is_large(room: Bookings, launch: QueuedLaunch) -> bool:
    """Whether a worker that holds nothing else has room for a launch."""
    return Bookings(room.capacity).fits(list_members(launch.request, launch.task, room.capacity))


def find_outdated(queue: PoolQueue, workers: Mapping[str, WorkerRoom]) -> dict[str, float]:
    """The workers whose version alone keeps a launch from them, that no worker here is able to run.

    Each with the moment since when the first of these launches waits.
    """
    found: dict[str, float] = {}
    if all(queue.features <= worker.features for worker in workers.values()):
        return found
    for line in queue.lines():
        first = line[0]
        if not first.request.features:
            continue
        large = {name: worker for name, worker in workers.items() if _is_large(worker.room, first)}
        if any(first.request.features <= worker.features for worker in large.values()):
            continue
        since = min(launch.since for launch in line)
        found |= {name: min(since, found.get(name, since)) for name in large}
    return found
