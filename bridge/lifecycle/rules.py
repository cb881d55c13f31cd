"""What a supervisor makes of events: it decides for its launch, or carries out what the daemon decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable, Optional

from overspan.bridge.lifecycle.decision import Decisions, decide
from overspan.bridge.lifecycle.execution import execute
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.deciders import Decider
from overspan.bridge.model.events import (
    DECISIONS,
    ORDERS,
    Event,
    Granted,
    LaunchLost,
    Resume,
    SetPeers,
    Signal,
    Suspend,
)
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple


class DecisionRules(NamedTuple):
    """How a supervisor reduces events, what it decides, and which kinds of events its orders file may contain."""

    reduce: Callable[[Job, Event], Job]
    decide: Callable[[Job, float], Decisions]
    heard: tuple[type[Any], ...]


def decide_release(job: Job, now: float) -> Decisions:
    """What a supervisor decides about a launch that the daemon decides: its end, once the daemon gave the launch up.

    TERM and, after the grace period, KILL for what runs of it.
    """
    if job.ending is None:
        return Decisions((), None)
    found: list[events.Decision] = []
    wake_at: Optional[float] = None
    for task in job.tasks:
        attempt = task.current
        if attempt is None or not attempt.live:
            continue
        if attempt.stop is None:
            kill_at = now + job.spec_of(task.name).grace_period
            found.append(events.Terminate(now, task.name, attempt.number, Cause.CANCEL.value, kill_at))
        elif attempt.stop.killed_at is None and attempt.stop.kill_at <= now:
            found.append(events.Kill(now, task.name, attempt.number))
        elif attempt.stop.killed_at is None:
            wake_at = attempt.stop.kill_at if wake_at is None else min(wake_at, attempt.stop.kill_at)
    return Decisions(tuple(found), wake_at)


_CARRIED_OUT = (*DECISIONS, Granted, LaunchLost, SetPeers, Signal, Suspend, Resume)
"""`Granted` tells where members of other launches are, `LaunchLost` that the launch is no longer wanted."""

RULES: Mapping[Decider, DecisionRules] = {
    Decider.SUPERVISOR: DecisionRules(reduce, decide, ORDERS),
    Decider.DAEMON: DecisionRules(execute, decide_release, _CARRIED_OUT),
}
"""By who decides about the launch, as its plan states it."""
