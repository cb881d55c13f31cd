"""Lines of a group's journal."""

from __future__ import annotations

from collections.abc import Sequence

from tests.unit.adapters.slurm.samples import NOW

from overspan.adapters.slurm.observation.journals import JournalLine, JournalPage
from overspan.bridge.model.events import (
    Event,
    Granted,
    Launch,
    NodeStarted,
)

MEMBERS = (("a", 0, "n1", "10.0.0.1", ()), ("b", 0, "n2", "10.0.0.2", ()))


START: tuple[Event, ...] = (
    Granted(NOW + 10, MEMBERS),
    Launch(NOW + 10, "a", 0),
    Launch(NOW + 10, "b", 0),
    NodeStarted(NOW + 11, "a", 0, 0),
    NodeStarted(NOW + 11, "b", 0, 0),
)


AFTER = NOW + 101
"""Behind the time at which the views of these tests were asked for (NOW + 100)."""


def page(
    events: Sequence[Event] = (), closed: bool = False, asked: float = NOW, orders: dict[int, int] | None = None
) -> JournalPage:
    """A journal from its start, with a line of 100 bytes for each event."""
    lines = tuple(
        JournalLine(event, (orders or {}).get(place, 0), 100 * (place + 1)) for place, event in enumerate(events)
    )
    return JournalPage(0, lines, 100 * len(lines) + 50, closed, asked)
