"""What orders mean for a launch that waits in a queue in its adapter's memory: on this machine, and in a pool. Pure."""

from __future__ import annotations

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


def interpret_order(event: Event, launch: int) -> Event | None:
    """What is noted of an order for the launch of that number; None where the order means nothing to it.

    A requeue with a hold is a hold. What only the daemon can wait for gives the launch back to it.
    """
    if isinstance(event, Requeue):
        return Hold(event.at, event.by) if event.hold else None
    if isinstance(event, SetBegin | SetDependency):
        return LaunchLost(event.at, launch, Cause.REQUEUE.value, "given back, to wait elsewhere")
    if isinstance(event, Cancel | Expire | Hold | LaunchLost | Release | SetNice | SetPriority | SetTime):
        return event
    return None
