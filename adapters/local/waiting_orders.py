"""What orders mean for a launch that waits: it is noted down here, since no supervisor has the launch yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.local.launches import LocalLaunch
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import (
    Cancel,
    Event,
    Expire,
    Hold,
    LaunchLost,
    Release,
    Requeue,
    SetBegin,
    SetDependency,
    SetNice,
    SetPriority,
    SetTime,
)

_NOTED = (Cancel, Expire, Hold, LaunchLost, Release, SetNice, SetPriority, SetTime)
_GIVEN_BACK = (SetBegin, SetDependency)
"""Orders for which only the daemon can wait."""


def select_notes(run: LocalLaunch, orders: Sequence[tuple[str, Event]]) -> list[tuple[str, Event]]:
    """What of the orders has a meaning for a launch that waits."""
    meant = [(token, _translate(run, event)) for token, event in orders]
    return [(token, event) for token, event in meant if isinstance(event, _NOTED) and not is_part(run, event)]


def is_part(run: LocalLaunch, event: Event) -> bool:
    """Whether an order cancels one of several tasks: its supervisor's business, from the start."""
    return isinstance(event, Cancel) and bool(event.task) and run.tasks > 1


def _translate(run: LocalLaunch, event: Event) -> Event:
    """What an order is for a launch that waits: a requeue with a hold is a hold, another time to wait for its end."""
    if isinstance(event, Requeue) and event.hold:
        return Hold(event.at, event.by)
    if isinstance(event, _GIVEN_BACK):
        return LaunchLost(event.at, run.place.launch, Cause.REQUEUE.value, "given back, to wait elsewhere")
    return event
