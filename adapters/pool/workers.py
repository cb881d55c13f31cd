"""The workers of a pool, as far as they are in contact: what each has said, and what it is owed.

A worker and the daemon exchange differences, so a lost request or answer costs nothing but its repetition. The worker
says which launches it holds, how much of their journals it has sent, and how many orders it has; the answer has the
leases and orders that it lacks, and names launches that are no longer its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from overspan.adapters.abilities import DeclaredWorker, HeldLaunch
from overspan.adapters.bookings import Bookings
from overspan.adapters.pool.launches import PoolLaunch

SILENT_AFTER = 60.0
"""Seconds without a word after which a worker is given no new lease; what it holds stays its own."""
MOST_LEASES = 50
"""Leases in one answer."""


@dataclass
class ConnectedWorker:
    """A process that serves the pool: `id` is its job's number and a word of its own, `JOB.WORD`."""

    id: str
    declared: DeclaredWorker
    room: Bookings
    near: bool = False
    """Whether it sees the daemon's folders."""
    heard_at: float = 0.0
    news: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def name(self) -> str:
        """The name that listings show."""
        return self.declared.name

    def is_silent(self, now: float) -> bool:
        """Whether nothing was heard of it for a while."""
        return now - self.heard_at > SILENT_AFTER


def find_owed(
    launches: Iterable[PoolLaunch], held: Mapping[str, HeldLaunch]
) -> tuple[list[PoolLaunch], dict[str, list[Any]], dict[str, int], list[str]]:
    """What an answer owes a worker with these launches: leases, orders, places in journals, launches to drop."""
    own = {launch.handle: launch for launch in launches if launch.lost is None}
    leases = [launch for handle, launch in own.items() if launch.leased and handle not in held]
    orders: dict[str, list[Any]] = {}
    places: dict[str, int] = {}
    for handle, state in held.items():
        launch = own.get(handle)
        if launch is None:
            continue
        launch.note_obeyed(state.orders)
        if unheard := launch.list_unheard():
            orders[handle] = unheard
        if state.sent != launch.received:
            places[handle] = launch.received
    return leases[:MOST_LEASES], orders, places, [handle for handle in held if handle not in own]
