"""The effect of orders on a waiting launch, which has no supervisor yet to apply them. Pure."""

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
"""Orders with a condition that only the daemon can wait for: the launch is given back to it."""


def select_notes(run: LocalLaunch, orders: Sequence[tuple[str, Event]]) -> list[tuple[str, Event]]:
    """The events that the orders mean for a waiting launch; the others have no effect on it."""
    meant = [(token, _translate(run, event)) for token, event in orders]
    return [(token, event) for token, event in meant if isinstance(event, _NOTED) and not is_part(run, event)]


def is_part(run: LocalLaunch, event: Event) -> bool:
    """Whether an order cancels one of several tasks, which is left to the supervisor once it starts."""
    return isinstance(event, Cancel) and bool(event.task) and run.tasks > 1


def _translate(run: LocalLaunch, event: Event) -> Event:
    """Translate an order: a requeue with a hold is a hold; a new begin time or dependency gives the launch back."""
    if isinstance(event, Requeue) and event.hold:
        return Hold(event.at, event.by)
    if isinstance(event, _GIVEN_BACK):
        return LaunchLost(event.at, run.place.launch, Cause.REQUEUE.value, "given back, to wait elsewhere")
    return event
