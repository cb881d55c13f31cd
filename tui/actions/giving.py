"""Gives orders: refuses, asks, looks at the targets again, sends, and tells what was answered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from overspan.tui.actions.edit_forms import FORMS
from overspan.tui.actions.editing import Editing
from overspan.tui.actions.order_log import OrderEntry
from overspan.tui.actions.order_round import GivenRound, OrderRound, notify_answers
from overspan.tui.actions.orders import JobOrder, check_again, choose_targets, find_order, refuse_orders
from overspan.tui.actions.target import Target
from overspan.tui.dialogs.order_dialog import GivenOrder, OrderDialog, ask_jobs
from overspan.tui.queue.tree import LineKey

if TYPE_CHECKING:
    from overspan.tui.app import TopApp


def start_order(app: TopApp, name: str, targets: Sequence[Target], shown: frozenset[LineKey] | None = None) -> None:
    """Begin an order about targets: a dialog first, where it loses work, needs a value, or is about several.

    `shown` are the lines in sight: the dialog says how many targets are not among them.
    """
    order = find_order(name)
    refusal = refuse_orders(app.options)
    if refusal:
        app.notify(refusal, severity="warning", markup=False)
        return
    choice = choose_targets(order, targets)
    if not choice.chosen:
        why = "\n".join(choice.left_out[:3])
        app.notify(why, title=f"{order.verb}: not possible", severity="warning", markup=False)
        return
    if order.name in FORMS:
        Editing(app, order, choice).start()
        return
    known = {target.key for target in choice.chosen if app.queue.jobs.find(target.key) is not None}

    def give(given: GivenOrder | None) -> None:
        if given is not None:
            _give(app, order, choice.chosen, given.value, known)

    hidden = 0 if shown is None else sum(target.key not in shown for target in choice.chosen)
    if order.opens_dialog or len(targets) > 1 or hidden:
        app.push_screen(OrderDialog(ask_jobs(order, choice, hidden)), give)
    else:
        give(GivenOrder())


def _give(app: TopApp, order: JobOrder, targets: Sequence[Target], value: Any, known: set[LineKey]) -> None:
    """Send the order to what it still makes sense for."""
    choice = check_again(order, targets, app.queue.jobs, known)
    if choice.left_out:
        lines = [*choice.left_out[:3], *([f"and {len(choice.left_out) - 3} more"] if choice.left_out[3:] else [])]
        app.notify("\n".join(lines), title=f"{order.verb}: left out", severity="warning", markup=False)
    for text in choice.left_out:
        app.order_log.add(OrderEntry(app.now(), order.verb, "", f"left out: {text}", True))
    chosen = choice.chosen
    batches = [chosen] if order.together and chosen else [(target,) for target in chosen]
    given = GivenRound(order, value, batches)
    OrderRound(app, given, lambda result: notify_answers(app, order, result)).send()
