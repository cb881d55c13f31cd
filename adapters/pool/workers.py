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
from overspan.adapters.contract import Node
from overspan.adapters.pool.dispatch import WorkerRoom
from overspan.adapters.pool.launches import PoolLaunch
from overspan.bridge.model.resources import MILLI

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
    features: frozenset[str] = frozenset()
    """What its version can do and earlier ones cannot."""

    @property
    def name(self) -> str:
        """The name that listings show."""
        return self.declared.name

    def is_silent(self, now: float) -> bool:
        """Whether nothing was heard of it for a while."""
        return now - self.heard_at > SILENT_AFTER

    def offer(self) -> WorkerRoom:
        """What launches may have of it."""
        return WorkerRoom(self.room, self.declared.life, self.features)

    def describe(self, now: float, needed: frozenset[str]) -> dict[str, Any]:
        """What is told of it: job, what it holds and has, when it was heard of last, and whether it lacks a feature."""
        return {
            "job": self.declared.job,
            "heard_at": self.heard_at,
            "near": self.near,
            "silent": self.is_silent(now),
            "lacks": sorted(needed - self.features),
            "cpus": self.room.capacity.cpu_milli / MILLI,
            "cpus_used": self.room.cpu_milli / MILLI,
            "gpus": len(self.room.capacity.gpus),
            "gpus_used": self.room.gpu_milli / MILLI,
            # What it has given back by its report is not held, although the store may not have the end yet.
            "jobs": sorted(map(job_of, self.room.keys())),
        }

    def as_node(self, partition: str, now: float) -> Node:
        """The worker as a node of its pool."""
        room, capacity = self.room, self.room.capacity
        used = (room.cpu_milli, room.memory_mib, room.gpu_milli)
        full = room.cpu_milli >= capacity.cpu_milli
        state = "allocated" if full else "mixed" if any(used) else "idle"
        if self.is_silent(now):
            state = "down"
        elif self.declared.closed:
            state = "draining" if any(used) else "drained"
        return Node(
            name=self.name,
            partition=partition,
            state=state,
            cpus=capacity.cpu_milli / MILLI,
            cpus_used=room.cpu_milli / MILLI,
            memory=capacity.memory_mib,
            memory_used=room.memory_mib,
            gpus=len(capacity.gpus),
            gpus_used=room.gpu_milli / MILLI,
            gpu_kind=next((kind for kind in capacity.gpus if kind), ""),
        )


def job_of(name: str) -> int:
    """The job of a worker or of a launch, by its name."""
    return int(name.partition(".")[0])


def find_owed(
    launches: Iterable[PoolLaunch], held: Mapping[str, HeldLaunch]
) -> tuple[list[PoolLaunch], dict[str, list[Any]], dict[str, int], list[str]]:
    """What an answer owes a worker with these launches: leases, orders, places in journals, launches to drop."""
    own = {launch.handle: launch for launch in launches if launch.lease.lost is None}
    leases = [launch for handle, launch in own.items() if launch.lease.leased and handle not in held]
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
