"""The orders that were carried out, which each launch's projection reports as events."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from overspan.adapters.slurm.observation.projection import Ordered
from overspan.bridge.model.events import Event

IN_DOUBT_SECONDS = 120.0
"""Seconds for which a projection waits for an order in doubt, which the daemon sends again."""


@dataclass
class DeliveredOrders:
    """The orders that were carried out, by handle. Their numbers grow across restarts, as cursors store them."""

    by_handle: dict[str, list[Ordered]] = field(default_factory=dict)
    tokens: dict[str, None] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    """How many orders of a launch are under way: its projection waits for their outcome."""
    in_doubt: dict[str, None] = field(default_factory=dict)
    """Tokens of orders in doubt: their answer was lost, so they may have had their effect."""
    last: int = 0
    _unsure: dict[str, float] = field(default_factory=dict)
    """Until when the projections of launches with orders in doubt wait (monotonic time)."""

    def begin(self, handle: str) -> None:
        """Note that an order is under way."""
        self.busy[handle] = self.busy.get(handle, 0) + 1
        self._unsure.pop(handle, None)

    def end(self, handle: str, sure: bool = True) -> None:
        """Note that an order is no longer under way; `sure` says that its outcome is known."""
        self.busy[handle] -= 1
        if not self.busy[handle]:
            del self.busy[handle]
        if not sure:
            self._unsure[handle] = time.monotonic() + IN_DOUBT_SECONDS

    def is_open(self, handle: str) -> bool:
        """Whether an order may have had an effect that is not noted yet: its launch's end is not reported meanwhile."""
        until = self._unsure.get(handle)
        if until is not None and time.monotonic() >= until:
            del self._unsure[handle]
        return handle in self.busy or handle in self._unsure

    def move_clock(self, seconds: float) -> None:
        """This machine's clock was set by so many seconds: orders keep their age."""
        now = time.time()
        for handle, orders in self.by_handle.items():
            self.by_handle[handle] = [order._replace(done_at=min(now, order.done_at + seconds)) for order in orders]

    def add(self, handle: str, token: str, event: Event, cluster_time: float | None = None) -> None:
        """Note an order that was carried out; `cluster_time` is when, by the cluster's clock."""
        self.tokens[token] = None
        self.in_doubt.pop(token, None)
        self.last = max(self.last + 1, time.time_ns() // 1000)
        self.by_handle.setdefault(handle, []).append(Ordered(self.last, event, time.time(), cluster_time))
        while len(self.by_handle) > 20_000:
            del self.by_handle[next(iter(self.by_handle))]
        while len(self.tokens) > 50_000:
            del self.tokens[next(iter(self.tokens))]
