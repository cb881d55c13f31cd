"""Orders whose values are edited as a small file: asks for the present ones, and sends what was changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.errors import OverspanError
from overspan.tui.actions.edit_forms import FORMS
from overspan.tui.actions.edit_lines import EditFile
from overspan.tui.actions.order_round import GivenRound, OrderRound, RoundResult, notify_answers
from overspan.tui.actions.orders import JobOrder, TargetChoice
from overspan.tui.actions.target import Target
from overspan.tui.daemon.error_words import word_error

if TYPE_CHECKING:
    from overspan.tui.app import TopApp
    from overspan.tui.dialogs.edit_dialog import EditDialog


class Editing:
    """One order that is edited, from the question for the present values to the last answer."""

    def __init__(self, app: TopApp, order: JobOrder, choice: TargetChoice) -> None:
        self._app = app
        self._order = order
        self._choice = choice
        self._form = FORMS[order.name]
        self._screen = app.screen
        self._place = app.place
        self._dialog: EditDialog | None = None

    def start(self) -> None:
        """Open the dialog, as soon as the present values are known."""
        form, chosen = self._form, self._choice.chosen
        if len(chosen) > 1:
            self._open(form.make_blank(chosen))
        else:
            self._app.questions.ask("values", lambda source: form.ask(source, chosen[0]), self._open, self._miss)

    def _miss(self, error: OverspanError) -> None:
        text = clean_text(f"{self._choice.chosen[0].label}: {word_error(error.message, error.remedy)}")
        self._app.notify(text, title=self._order.verb, severity="error", markup=False)

    def _open(self, file: EditFile) -> None:
        # Textual's editor costs some milliseconds of import, which no start should pay.
        from overspan.tui.dialogs.edit_dialog import EditDialog

        if self._app.screen is self._screen and self._app.place is self._place:
            self._dialog = EditDialog(self._order, self._choice, file, self._send)
            self._app.push_screen(self._dialog)

    def _send(self, targets: Sequence[Target], changes: Mapping[str, str]) -> str:
        """Send the changes to each of the targets; gives what is wrong with them, and then nothing was sent."""
        try:
            value = self._form.read(changes, self._app.now())
        except ValueError as error:
            return str(error)
        given = GivenRound(self._order, value, tuple((target,) for target in targets))
        OrderRound(self._app, given, self._finish).send()
        return ""

    def _finish(self, result: RoundResult) -> None:
        dialog = self._dialog
        if dialog is None or not dialog.is_current or not result.failed:
            notify_answers(self._app, self._order, result)
        if dialog is not None and dialog.is_current:
            dialog.tell(result.failed)
