"""Orders on groups: Slurm's own commands on a waiting allocation, lines for the supervisor of one that runs. Pure.

What ends or changes work is written for the supervisor whatever the state: a group that starts meanwhile reads its
orders before it starts anything.
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
    """What carries an order out; None for one that has no form here.

    `phase` is Slurm's, None where it is not known. `begun`: the supervisor is known to be there; a signal would end
    one that is only starting, and it reads its orders in the beginning.
    """
    native, event = str(handle.native), order.event
    append = append_words(handle.orders, order.token, event)
    hint = (hint_words(native),) if begun else ()
    pending: Words = (*SCANCEL, "--state=PENDING", native)
    if isinstance(event, events.Cancel) and not event.task:
        if begun:
            return OrderSteps((append,), hint)
        # Behind the line: what starts in between reads it.
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
        # The supervisor is stopped too; it learns of it, for its clocks, when it goes on.
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
    """Signal the batch program alone: there are orders."""
    return (*SCANCEL, "--state=RUNNING", "--batch", "--signal=USR1", native)
