"""Has checkpoints evaluated once more: asks, orders, and tells what was answered."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.order_log import OrderEntry, sum_up_answers
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.questions import ORDERS
from overspan.tui.daemon.source import Source
from overspan.tui.dialogs.order_dialog import GivenOrder, OrderDialog, OrderQuestion

if TYPE_CHECKING:
    from overspan.tui.app import TopApp

VERB = "Evaluate again"
LIVE = "Evaluations of it that run or wait go on."


class EvaluationChoice(NamedTuple):
    """A checkpoint that is to be evaluated once more, as it was when the user chose it."""

    key: Hashable
    """The line that it was chosen on."""
    job: str
    """The watched job, as the daemon is asked for it."""
    checkpoint: str
    evaluation: str
    label: str
    """The cluster, the job, the evaluation and the checkpoint."""
    state: str = ""
    """Of its newest evaluation."""


class _Round:
    """One order about several checkpoints: each is sent by itself, and all answers are told together."""

    def __init__(self, app: TopApp, wishes: Sequence[EvaluationChoice], finish: Callable[[Collection[Hashable]], None]):
        self._app = app
        self._wishes = wishes
        self._finish = finish
        self._entries: list[OrderEntry] = []
        self._done: list[Hashable] = []

    def send(self) -> None:
        """Give the orders, one after another, in the background."""
        for wish in self._wishes:
            self._put(wish)

    def _put(self, wish: EvaluationChoice) -> None:
        def ask(source: Source) -> Sequence[Mapping[str, Any]]:
            return source.run_evaluation(wish.job, wish.checkpoint, wish.evaluation)

        def take(made: Sequence[Mapping[str, Any]]) -> None:
            self._done.append(wish.key)
            self._note(wish, ", ".join(map(_word_made, made)) or "nothing is run", False)

        def fail(error: OverspanError) -> None:
            self._note(wish, word_error(error.message, error.remedy), True)

        self._app.questions.ask(ORDERS, ask, take, fail)

    def _note(self, wish: EvaluationChoice, answer: str, failed: bool) -> None:
        self._entries.append(self._app.order_log.add(OrderEntry(self._app.now(), VERB, wish.label, answer, failed)))
        if len(self._entries) == len(self._wishes):
            severe = any(entry.failed for entry in self._entries)
            text = sum_up_answers(self._entries)
            self._app.notify(text, title=VERB, severity="error" if severe else "information", markup=False)
            self._finish(self._done)


def _word_made(made: Mapping[str, Any]) -> str:
    return f"runs as job {made['job']}" if made.get("job") else "waits for its turn"


def run_again(app: TopApp, wishes: Sequence[EvaluationChoice], finish: Callable[[Collection[Hashable]], None]) -> None:
    """Ask whether these are to be evaluated once more, and order it; `finish` has the lines of those that are."""

    def answered(given: GivenOrder | None) -> None:
        if given is not None:
            _Round(app, wishes, finish).send()

    width = max(len(wish.state) for wish in wishes)
    lines = [f"{wish.state:{width}}  {wish.label}" for wish in wishes]
    what = "this checkpoint" if len(wishes) == 1 else f"these {len(wishes)} checkpoints"
    live = any(wish.state in ("RUNNING", "PENDING", "WAITING", "CONFIGURING", "COMPLETING") for wish in wishes)
    title = f"{VERB}: {what}?" + (f" {LIVE}" if live else "")
    app.push_screen(OrderDialog(OrderQuestion(title, lines, VERB)), answered)
