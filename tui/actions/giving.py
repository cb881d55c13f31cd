"""Gives orders: refuses, asks, looks at the targets again, sends, and tells what was answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.order_log import OrderEntry, sum_up_answers
from overspan.tui.actions.orders import (
    JobOrder,
    OrderAnswer,
    check_again,
    choose_targets,
    find_order,
    refuse_orders,
    word_error,
)
from overspan.tui.actions.target import Target
from overspan.tui.dialogs.order_dialog import GivenOrder, OrderDialog, ask_jobs
from overspan.tui.queue.tree import LineKey
from overspan.tui.source import Source

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
    told = OrderRound(app, order, len(batches), value)
    for batch in batches:
        told.send(batch)


class OrderRound:
    """The answers to one order about several targets: each goes to the log, all together make one notification."""

    def __init__(self, app: TopApp, order: JobOrder, batches: int, value: Any) -> None:
        self._app = app
        self._order = order
        self._value = value
        self._left = batches
        self._entries: list[OrderEntry] = []

    def send(self, targets: Sequence[Target]) -> None:
        """Put one request; it is sent in the background."""
        refs = tuple(target.ref for target in targets)
        order, value = self._order, self._value

        def ask(source: Source) -> Sequence[OrderAnswer]:
            return order.send(source, refs, value)

        self._app.questions.ask("orders", ask, self._take(targets), self._fail(targets))

    def _take(self, targets: Sequence[Target]) -> Callable[[Sequence[OrderAnswer]], None]:
        labels = {target.ref: target.label for target in targets}

        def take(answers: Sequence[OrderAnswer]) -> None:
            self._note([(labels.get(answer.ref, answer.ref), answer.text, answer.failed) for answer in answers])

        return take

    def _fail(self, targets: Sequence[Target]) -> Callable[[OverspanError], None]:
        def fail(error: OverspanError) -> None:
            text = word_error(error.message, error.remedy)
            self._note([(target.label, text, True) for target in targets])

        return fail

    def _note(self, answers: Sequence[tuple[str, str, bool]]) -> None:
        log = self._app.order_log
        for label, text, failed in answers:
            self._entries.append(log.add(OrderEntry(self._app.now(), self._order.verb, label, text, failed)))
        self._left -= 1
        if not self._left:
            failed = any(entry.failed for entry in self._entries)
            text = sum_up_answers(self._entries)
            self._app.notify(text, title=self._order.verb, severity="error" if failed else "information", markup=False)
