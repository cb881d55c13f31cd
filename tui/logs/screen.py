"""The screen of logs."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Static

from overspan.tui.actions.target import Target


class LogScreen(Screen[None]):
    """What a job prints: any task, node, attempt and stream."""

    BINDINGS: ClassVar[list[BindingType]] = [("q,escape", "dismiss", "back")]

    def __init__(self, target: Target) -> None:
        super().__init__()
        self.target = target

    def compose(self) -> ComposeResult:
        yield Static(self.target.label, markup=False)
