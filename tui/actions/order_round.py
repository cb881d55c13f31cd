"""One order about several targets: it is sent in requests, and all answers are told together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from textual.notifications import SeverityLevel

from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.order_log import OrderEntry, sum_up_answers
from overspan.tui.actions.orders import JobOrder, OrderAnswer
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.source import Source

if TYPE_CHECKING:
    from overspan.tui.app import TopApp


class GivenRound(NamedTuple):
    """What is sent: the order with its value, a request for each batch of targets."""

    order: JobOrder
    value: Any
    batches: Sequence[Sequence[Target]]


class RoundResult(NamedTuple):
    """What was answered: the entries of the log, the targets that failed with why, and those that did not."""

    entries: Sequence[OrderEntry]
    failed: Sequence[tuple[Target, str]]
    done: Sequence[Target]


class OrderRound:
    """Sends the batches; each answer goes to the log, and `finish` has all of them together."""

    def __init__(self, app: TopApp, given: GivenRound, finish: Callable[[RoundResult], None]) -> None:
        self._app = app
        self._given = given
        self._finish = finish
        self._left = len(given.batches)
        self._place = app.place
        self._entries: list[OrderEntry] = []
        self._failed: list[tuple[Target, str]] = []
        self._done: list[Target] = []

    def send(self) -> None:
        """Put the requests; they are sent in the background, one after another."""
        for batch in self._given.batches:
            self._put(batch)

    def _put(self, targets: Sequence[Target]) -> None:
        refs = tuple(target.ref for target in targets)
        order, value = self._given.order, self._given.value
        log = self._app.order_log
        sent = [log.begin(self._app.now(), order.verb, target.label) for target in targets]

        def end(answers: Sequence[tuple[Target, str, bool]]) -> None:
            for entry in sent:
                log.end(entry)
            self._note(answers)

        def ask(source: Source) -> Sequence[OrderAnswer]:
            return order.send(source, refs, value)

        def fail(error: OverspanError) -> None:
            text = word_error(error.message, error.remedy)
            end([(target, text, True) for target in targets])

        def take(answers: Sequence[OrderAnswer]) -> None:
            told = {answer.ref: answer for answer in answers}
            end([(target, told[target.ref].text, told[target.ref].failed) for target in targets])

        self._app.questions.ask("orders", ask, take, fail)

    def _note(self, answers: Sequence[tuple[Target, str, bool]]) -> None:
        log, verb = self._app.order_log, self._given.order.verb
        for target, text, failed in answers:
            self._entries.append(log.add(OrderEntry(self._app.now(), verb, target.label, text, failed)))
            if failed:
                self._failed.append((target, text))
            else:
                self._done.append(target)
        self._left -= 1
        if not self._left:
            self._place.drop_marks({target.key for target in self._done})
            self._finish(RoundResult(self._entries, self._failed, self._done))


def notify_answers(app: TopApp, order: JobOrder, result: RoundResult) -> None:
    """Tell all answers in one notification."""
    severity: SeverityLevel = "error" if result.failed else "information"
    app.notify(sum_up_answers(result.entries), title=order.verb, severity=severity, markup=False)
