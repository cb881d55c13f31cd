"""The dialog in which values are edited as a small file; it stays, with what was typed, until all was accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical, VerticalScroll
from textual.content import Content
from textual.widgets import Button, Static, TextArea

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.actions.edit_lines import EditFile
from overspan.tui.actions.orders import JobOrder, TargetChoice
from overspan.tui.actions.target import Target
from overspan.tui.dialogs.order_dialog import list_lines, word_left_out, word_title
from overspan.tui.dialogs.seen_dialog import SeenDialog
from overspan.tui.keyboard.keys import bind
from overspan.tui.widgets.text_inputs import TextEditor

SendChanges = Callable[[Sequence[Target], Mapping[str, str]], str]
"""Sends what was changed; gives what is wrong with it, and then nothing was sent."""


_MOST_TARGETS = 5
"""Lines for the targets; more are scrolled to."""


class EditDialog(SeenDialog[None]):
    """Edits the values of an order's targets. `send` begins to send; `tell` has the answers."""

    DEFAULT_CSS = """
    EditDialog { align: center middle; }
    EditDialog > Vertical {
        width: 90%; max-width: 100; height: auto; max-height: 95%; border: round $warning; padding: 0 1;
    }
    EditDialog VerticalScroll { height: auto; }
    EditDialog Static { width: 1fr; }
    EditDialog #edit-targets, EditDialog #edit-left-out { text-wrap: nowrap; text-overflow: ellipsis; }
    EditDialog #edit-left-out { color: $text-muted; max-height: 4; }
    EditDialog TextArea { border: none; padding: 0; margin-top: 1; }
    EditDialog #edit-trouble { color: $text-error; max-height: 4; }
    EditDialog Horizontal { height: 1; margin-top: 1; }
    EditDialog Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bind("edit")]

    def __init__(self, order: JobOrder, choice: TargetChoice, file: EditFile, send: SendChanges) -> None:
        super().__init__()
        self.order = order
        self.choice = choice
        self._file = file
        self._send = send
        self._sending = False

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(id="edit-title", markup=False)
            with VerticalScroll(can_focus=False):
                yield Static(id="edit-targets", markup=False)
            if self.choice.left_out:
                yield Static(Content("\n".join(word_left_out(self.choice.left_out))), id="edit-left-out")
            yield TextEditor(self._file.write(), compact=True, highlight_cursor_line=False)
            yield Static(id="edit-trouble", markup=False)
            with Horizontal():
                yield Button(Content("No"), id="no", compact=True)
                yield Button(Content(self.order.verb), id="yes", variant="warning", compact=True)

    def on_mount(self) -> None:
        """Begin at the first value; until the dialog has been seen, nothing is sent."""
        self._name_targets()
        area = self.query_one(TextArea)
        rows = area.text.splitlines()
        first = next((row for row, text in enumerate(rows) if not text.startswith("#")), 0)
        area.move_cursor((first, len(rows[first]) if rows else 0))
        area.focus()
        self.note_painted()

    def on_resize(self) -> None:
        """Share the height anew, once the lines are folded for the new width."""
        self._share_height()
        self.call_after_refresh(self._share_height)

    def on_text_area_changed(self) -> None:
        """Another line may have come."""
        self._share_height()

    def _share_height(self) -> None:
        """Give targets and values their lines, up to a limit: an automatic height of the box counts all of them."""
        area = self.query_one(TextArea)
        area.styles.height = max(4, min(area.wrapped_document.height, self.size.height // 2))
        self.query_one(VerticalScroll).styles.height = min(len(self.choice.chosen), _MOST_TARGETS)

    def _name_targets(self) -> None:
        targets = self.choice.chosen
        self.query_one("#edit-title", Static).update(Content(word_title(self.order, len(targets), 0)))
        self.query_one("#edit-targets", Static).update(Content("\n".join(list_lines(targets))))

    @property
    def text(self) -> str:
        """What was typed."""
        return self.query_one(TextArea).text

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """One of the two was chosen."""
        event.stop()
        if event.button.id == "yes":
            self.action_send()
        else:
            self.action_close()

    def action_close(self) -> None:
        """Change nothing; what was sent already is told in the order log."""
        self.dismiss()

    def action_send(self) -> None:
        """Send what was changed, once at a time."""
        if not self.was_answered or self._sending:
            return
        try:
            trouble = self._send(self.choice.chosen, self._file.read(self.text))
        except ValueError as error:
            trouble = str(error)
        self._sending = not trouble
        self._say(trouble or "sending...")

    def tell(self, failed: Sequence[tuple[Target, str]]) -> None:
        """Take the answers: the dialog closes, or goes on with the targets that refused."""
        self._sending = False
        if not failed:
            self.dismiss()
            return
        self.choice = self.choice._replace(chosen=tuple(target for target, _ in failed))
        self._name_targets()
        self._share_height()
        texts = dict.fromkeys(text for _, text in failed)
        self._say("\n".join(texts))
        self.query_one(TextArea).focus()

    def _say(self, text: str) -> None:
        self.query_one("#edit-trouble", Static).update(Content("\n".join(map(clean_text, text.splitlines()))))
