"""The orders that were carried out, to be told with the stories of their launches."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from overspan.adapters.slurm.stories import Ordered
from overspan.bridge.model.events import Event


@dataclass
class Orders:
    """The orders that were carried out, by handle; their numbers grow from one process to the next."""

    by_handle: dict[str, list[Ordered]] = field(default_factory=dict)
    tokens: dict[str, None] = field(default_factory=dict)
    busy: dict[str, int] = field(default_factory=dict)
    """Launches whose orders are under way, and how many: their story goes on when it is known what came of those."""
    last: int = 0

    def begin(self, handle: str) -> None:
        """An order is being carried out."""
        self.busy[handle] = self.busy.get(handle, 0) + 1

    def end(self, handle: str) -> None:
        """It is known what came of an order."""
        self.busy[handle] -= 1
        if not self.busy[handle]:
            del self.busy[handle]

    def add(self, handle: str, token: str, event: Event, there: float | None = None) -> None:
        """Note an order that has been carried out, and when by the cluster's clock."""
        self.tokens[token] = None
        self.last = max(self.last + 1, time.time_ns() // 1000)
        self.by_handle.setdefault(handle, []).append(Ordered(self.last, event, time.time(), there))
        while len(self.by_handle) > 20_000:
            del self.by_handle[next(iter(self.by_handle))]
        while len(self.tokens) > 50_000:
            del self.tokens[next(iter(self.tokens))]
