"""Jobs of any age."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from overspan.tui.places.place import Place


class HistoryPlace(Place):
    """Jobs of any age."""

    name_of_place = "history"

    def __init__(self) -> None:
        super().__init__(id="place-history")

    def compose(self) -> ComposeResult:
        yield Static("history")
