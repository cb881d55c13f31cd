"""A dialog that lists what an order is about; its default is No."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Button, Static

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.keys import bind

_SHOWN = 12
"""Lines that are listed; more are counted."""


class ConfirmDialog(ModalScreen[bool]):
    """Asks whether to carry out an order; `yes` is its verb."""

    DEFAULT_CSS = """
    ConfirmDialog { align: center middle; }
    ConfirmDialog > Vertical { width: auto; max-width: 90%; height: auto; border: round $warning; padding: 0 1; }
    ConfirmDialog Static { width: auto; }
    ConfirmDialog Horizontal { width: auto; height: 1; margin-top: 1; }
    ConfirmDialog Button { margin-right: 2; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bind("confirm")]

    def __init__(self, title: str, lines: Sequence[str], yes: str) -> None:
        super().__init__()
        self._title = title
        self._lines = tuple(lines)
        self._yes = yes
        self._seen = False

    def compose(self) -> ComposeResult:
        more = len(self._lines) - _SHOWN
        lines = [*self._lines[:_SHOWN], *([f"and {more} more"] if more > 0 else [])]
        with Vertical():
            yield Static(Content(clean_text(self._title)))
            yield Static(Content("\n".join("  " + clean_text(line) for line in lines)))
            with Horizontal():
                yield Button(Content("No"), id="no", compact=True)
                yield Button(Content(self._yes), id="yes", variant="warning", compact=True)

    def on_mount(self) -> None:
        """Enter means No; until the dialog has been seen, nothing means Yes."""
        self.query_one("#no").focus()
        self.call_after_refresh(self._note_seen)

    def _note_seen(self) -> None:
        self._seen = True

    def on_button_pressed(self, event: Button.Pressed) -> None:
        """One of the two was chosen."""
        event.stop()
        self.action_answer(event.button.id == "yes")

    def action_answer(self, yes: bool) -> None:
        """Answer by a key."""
        if self._seen or not yes:
            self.dismiss(yes)
