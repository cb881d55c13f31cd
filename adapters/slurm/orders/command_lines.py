"""The command lines (scancel, scontrol, ...) that carry orders out. Pure."""

from __future__ import annotations

import math
import re
import signal as signals
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.slurm.handles import Handle
from overspan.adapters.slurm.rendering.script import render_instant, render_limit
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model import events
from overspan.bridge.model.events import Event

_WAIT = "20"
"""Timeout of scancel in seconds: for a job that is about to start it would try for a minute."""

GAVE_UP = 124
"""The exit code of timeout(1) for a command that took too long."""

Words = tuple[str, ...]
SCANCEL: Words = ("timeout", _WAIT, "scancel")
TOGETHER = 200
"""Jobs that one scancel names."""
_END_WAITING = """\
IFS=,; jobs=$(squeue --noheader --all --array --states=PENDING --format=%i --jobs="$*") || exit $?
unset IFS; [ -z "$jobs" ] || exec scancel $jobs
"""
_END_ARRAY = """\
waiting=$(squeue --noheader --all --array --states=PENDING --format=%i --jobs="$1") || exit $?
[ -n "$waiting" ] || exit 0
printf '%s\\n' $waiting | grep -qvxF "$(printf '%s\\n' "$@")"
[ $? -ne 1 ] || exec scancel --state=PENDING "$1"
"""
"""Cancels all waiting elements of an array with one call, if all of them are to be cancelled: while elements are
cancelled one by one, the scheduler starts others."""
_WITHDRAW = """\
scontrol update JobId="$1" StartTime=now+1hour || exit $?
case $1 in *_*) exec scancel "$1";; esac
exec scancel --state=PENDING "$1"
"""
"""Compare-and-set: withdraws a job only if it has not started. scancel alone checks the state and then cancels, and the
job may start in between. So the start time is moved an hour ahead first: the controller refuses that for a job that has
started, and a job that was moved cannot start (measured on 22.05)."""


class OrderSteps(NamedTuple):
    """The commands of an order: `first` have to succeed, `hints` may fail, `then` follow if all of `first` succeed."""

    first: tuple[Words, ...]
    hints: tuple[Words, ...] = ()
    then: tuple[Words, ...] = ()


def render_order(handle: Handle, event: Event, starting: bool = False) -> tuple[Words, ...] | None:
    """The commands that carry an order out; None for an order that Slurm does not have.

    `starting` says that its nodes are being prepared, so that it cannot be signalled yet.
    """
    native = handle.name
    if isinstance(event, events.Cancel):
        grace = handle.grace if event.grace is None else event.grace
        return cancel_words(native, grace == 0 or starting)
    if isinstance(event, events.Expire):
        return (withdraw_words(native),)
    if isinstance(event, events.Preempt) and not event.requeue:
        return cancel_words(native, True)
    if isinstance(event, events.Signal):
        scope = "--batch" if event.batch_only else "--full"
        return ((*SCANCEL, "--state=RUNNING", f"--signal={event.signal}", scope, native),)
    changed = render_change(event)
    if changed:
        return (("scontrol", "update", f"JobId={native}", changed),)
    words = VERBS.get(type(event))
    if isinstance(event, events.Requeue) and event.hold:
        words = ("requeuehold", UNLESS_OVER)
    return (("scontrol", *words, native),) if words else None


UNLESS_OVER = "Incomplete"
"""Makes a requeue fail for a job that has just ended, which would otherwise run again (scontrol(1), tried on 22.05)."""
VERBS: dict[type, Words] = {
    events.Hold: ("hold",),
    events.Release: ("release",),
    events.Suspend: ("suspend",),
    events.Resume: ("resume",),
    events.Requeue: ("requeue", UNLESS_OVER),
    events.Restart: ("requeue", UNLESS_OVER),
    events.Preempt: ("requeue", UNLESS_OVER),
}


def cancel_words(native: str, at_once: bool) -> tuple[Words, ...]:
    """Cancel a job: at once, or with SIGTERM for every process if it runs.

    Each command is for one state, because scancel waits and tries again to signal a job that has not started (measured
    on 22.05). A waiting element needs a program of its own: `scancel --state=PENDING` for it cancels all waiting
    elements of its array.
    """
    if at_once:
        return ((*SCANCEL, native),)
    if "_" in native:
        waiting: Words = ("timeout", _WAIT, "/bin/sh", "-c", _END_WAITING, "scancel", native)
    else:
        waiting = (*SCANCEL, "--state=PENDING", native)
    running = (*SCANCEL, "--state=RUNNING", f"--signal={signals.SIGTERM.name[3:]}", "--full", native)
    return (waiting, running, (*SCANCEL, "--state=SUSPENDED", native))


def cancel_arrays(elements: Mapping[int, Sequence[int]]) -> tuple[Words, ...]:
    """Cancel the waiting elements of arrays at once, if all of them are named; indices by native array."""
    return tuple(
        (
            "timeout",
            _WAIT,
            "/bin/sh",
            "-c",
            _END_ARRAY,
            "cancel",
            str(array),
            *(f"{array}_{index}" for index in indices),
        )
        for array, indices in elements.items()
        if len(indices) > 1
    )


def withdraw_words(native: str) -> Words:
    """Cancel a job only if it still waits (`_WITHDRAW`)."""
    return ("timeout", _WAIT, "/bin/sh", "-c", _WITHDRAW, "withdraw", native)


def merge_words(asked: Sequence[Words]) -> tuple[list[Words], list[int]]:
    """Merge scancel commands that differ only in the last word; also returns the index of each command's merged one.

    A merged command comes at the position of its last part, so that it still follows everything that its parts follow.
    """
    kinds: dict[Words, int] = {}
    merged: list[list[str]] = []
    places, lasts = [], []
    for number, words in enumerate(asked):
        kind = words[:-1] if "scancel" in words else (*words, str(number))
        place = kinds.get(kind)
        if place is None or len(merged[place]) - len(kind) >= TOGETHER:
            place = kinds[kind] = len(merged)
            merged.append(list(words[:-1] if "scancel" in words else words))
            lasts.append(number)
        if "scancel" in words:
            merged[place].append(words[-1])
        lasts[place] = number
        places.append(place)
    order = sorted(range(len(merged)), key=lasts.__getitem__)
    position = {place: number for number, place in enumerate(order)}
    return [tuple(merged[place]) for place in order], [position[place] for place in places]


def share_answer(done: Done | None, words: Words, name: str) -> Done | None:
    """One job's share of the answer to a merged command: its own lines, or success if only others are named."""
    if done is None or done.rc in (0, GAVE_UP):
        return done
    lines = done.words.splitlines()

    def about(other: str) -> list[str]:
        return [line for line in lines if re.search(rf"\b{re.escape(other)}\b", line)]

    own = about(name)
    if own:
        return Done(done.rc, b"", "\n".join(own).encode())
    return Done(0, b"", b"") if any(about(word) for word in words if word != name and word[0].isdigit()) else done


def render_change(event: Event) -> str:
    """The assignment for `scontrol update`; empty for an order that is none."""
    if isinstance(event, events.SetTime):
        return f"TimeLimit={render_limit(event.time or 0)}"
    if isinstance(event, events.SetPriority):
        return f"Priority={event.priority}"
    if isinstance(event, events.SetNice):
        return f"Nice={event.nice}"
    if isinstance(event, events.SetBegin):
        return f"StartTime={'now' if event.begin is None else render_instant(math.ceil(event.begin))}"
    return ""
