"""What a supervisor makes of events: it decides for its launch, or carries out what the daemon decides."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Callable

from overspan.bridge.lifecycle.decision import Decisions, decide
from overspan.bridge.lifecycle.execution import execute
from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.release import decide_release
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


_CARRIED_OUT = (*DECISIONS, Granted, LaunchLost, SetPeers, Signal, Suspend, Resume)
"""`Granted` tells where members of other launches are, `LaunchLost` that the launch is no longer wanted."""

RULES: Mapping[Decider, DecisionRules] = {
    Decider.SUPERVISOR: DecisionRules(reduce, decide, ORDERS),
    Decider.DAEMON: DecisionRules(execute, decide_release, _CARRIED_OUT),
}
"""By who decides about the launch, as its plan states it."""
