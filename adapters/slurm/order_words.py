"""Orders as words of Slurm's commands. Pure."""

from __future__ import annotations

import math
import signal as signals
from typing import NamedTuple

from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.script import render_instant, render_limit
from overspan.bridge.model import events
from overspan.bridge.model.events import Event

_WAIT = "20"
"""Seconds after which scancel gives up: it tries for a minute on what is about to start."""

GAVE_UP = 124
"""timeout(1)'s exit code."""

Words = tuple[str, ...]
SCANCEL: Words = ("timeout", _WAIT, "scancel")


class Steps(NamedTuple):
    """What carries an order out: the commands that have to work, those that are hints, and what follows then only."""

    first: tuple[Words, ...]
    hints: tuple[Words, ...] = ()
    then: tuple[Words, ...] = ()


def render_order(handle: Handle, event: Event, starting: bool = False) -> tuple[Words, ...] | None:
    """The commands that carry an order out; None for an order that has no form on Slurm.

    `starting`: its nodes are being made ready, so that it cannot be signalled yet.
    """
    native = str(handle.native)
    if isinstance(event, events.Cancel):
        grace = handle.grace if event.grace is None else event.grace
        return cancel_words(native, grace == 0 or starting)
    if isinstance(event, events.Expire) or (isinstance(event, events.Preempt) and not event.requeue):
        return cancel_words(native, True)
    if isinstance(event, events.Signal):
        scope = "--batch" if event.batch_only else "--full"
        return ((*SCANCEL, "--state=RUNNING", f"--signal={event.signal}", scope, native),)
    changed = render_change(event)
    if changed:
        return (("scontrol", "update", f"JobId={native}", changed),)
    verb = VERBS.get(type(event))
    if isinstance(event, events.Requeue) and event.hold:
        verb = "requeuehold"
    return (("scontrol", verb, native),) if verb else None


VERBS: dict[type, str] = {
    events.Hold: "hold",
    events.Release: "release",
    events.Suspend: "suspend",
    events.Resume: "resume",
    events.Requeue: "requeue",
    events.Restart: "requeue",
    events.Preempt: "requeue",
}


def cancel_words(native: str, at_once: bool) -> tuple[Words, ...]:
    """End a job: at once, or with a TERM for every process of one that runs.

    Each command takes jobs of one state, since scancel waits and tries again when it is to signal one that has not
    started (measured on 22.05).
    """
    if at_once:
        return ((*SCANCEL, native),)
    running = (*SCANCEL, "--state=RUNNING", f"--signal={signals.SIGTERM.name[3:]}", "--full", native)
    return ((*SCANCEL, "--state=PENDING", native), running, (*SCANCEL, "--state=SUSPENDED", native))


def render_change(event: Event) -> str:
    """What `scontrol update` is told; empty for an order that is no such change."""
    if isinstance(event, events.SetTime):
        return f"TimeLimit={render_limit(event.time or 0)}"
    if isinstance(event, events.SetPriority):
        return f"Priority={event.priority}"
    if isinstance(event, events.SetNice):
        return f"Nice={event.nice}"
    if isinstance(event, events.SetBegin):
        return f"StartTime={'now' if event.begin is None else render_instant(math.ceil(event.begin))}"
    return ""
