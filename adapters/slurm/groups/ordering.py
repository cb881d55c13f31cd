"""Orders on groups: Slurm's commands for a waiting allocation, lines in the orders file for one that runs. Pure.

Orders that end or change work go into the file in every state: a group that starts at this moment reads its orders
before it starts anything.
"""

from __future__ import annotations

from collections.abc import Sequence

from overspan.adapters.contract import Order
from overspan.adapters.slurm.groups.files import append_words
from overspan.adapters.slurm.handles import GroupHandle
from overspan.adapters.slurm.observation.outcomes import Phase
from overspan.adapters.slurm.orders.command_lines import (
    SCANCEL,
    VERBS,
    OrderSteps,
    Words,
    render_change,
    withdraw_words,
)
from overspan.adapters.slurm.rendering.script import render_limit
from overspan.bridge.model import events

_FOR_RUNNING = (events.Requeue, events.Restart, events.Preempt, events.Signal)
_ON_LEADER = (events.Hold, events.Release, events.SetPriority, events.SetNice, events.SetBegin)


def plan_order(handle: GroupHandle, order: Order, phase: Phase | None, begun: bool) -> OrderSteps | None:
    """The commands of an order; None for one that Slurm cannot carry out.

    `phase` is Slurm's, None where it is not known. `begun` says that the supervisor handles signals already: before
    that a signal would kill it, and it needs none, because it reads its orders when it starts.
    """
    native, event = str(handle.native), order.event
    append = append_words(handle.orders, order.token, event)
    hint = (hint_words(native),) if begun else ()
    pending: Words = (*SCANCEL, "--state=PENDING", native)
    if isinstance(event, events.Cancel) and not event.task:
        if begun:
            return OrderSteps((append,), hint)
        # The line is written first: a supervisor that starts before the scancel reads it.
        at_once: Words = (*SCANCEL, native)
        return OrderSteps((append, at_once if phase is Phase.STARTING else pending))
    if isinstance(event, events.Expire):
        return OrderSteps((withdraw_words(native),))
    if isinstance(event, _ON_LEADER):
        changed = render_change(event)
        return OrderSteps(
            (
                ("scontrol", "update", f"JobId={native}", changed)
                if changed
                else ("scontrol", *VERBS[type(event)], native),
            )
        )
    if isinstance(event, events.Suspend):
        # Slurm stops the supervisor too. It reads the order, which it needs for its clocks, when it is resumed.
        return OrderSteps((("scontrol", "suspend", native),), then=(append,))
    if isinstance(event, events.Resume):
        return OrderSteps((append, ("scontrol", "resume", native)))
    if isinstance(event, _FOR_RUNNING):
        return OrderSteps(()) if phase is Phase.QUEUED else OrderSteps((append,), hint)
    if isinstance(event, (events.Cancel, events.SetTime)):
        return OrderSteps((append,), hint)
    return None


def plan_limits(
    handle: GroupHandle, steps: OrderSteps, before: Sequence[int | None], after: Sequence[int | None]
) -> OrderSteps:
    """The steps of a new wall time with the allocation's limits: raised before the order, or lowered after it.

    Only an operator may lengthen a limit (scontrol(1)).
    """
    longer: list[Words] = []
    shorter: list[Words] = []
    for component, (old, new) in enumerate(zip(before, after, strict=True)):
        if old != new:
            target = f"JobId={handle.native}" + (f"+{component}" if len(after) > 1 else "")
            words = ("scontrol", "update", target, f"TimeLimit={render_limit(new or 0)}")
            (longer if new is None or (old is not None and new > old) else shorter).append(words)
    if longer:
        return OrderSteps(tuple(longer), then=(*steps.first, *shorter, *steps.hints))
    return OrderSteps(steps.first, (*shorter, *steps.hints))


def hint_words(native: str) -> Words:
    """Signal the supervisor, which is the batch program, that there are orders."""
    return (*SCANCEL, "--state=RUNNING", "--batch", "--signal=USR1", native)
