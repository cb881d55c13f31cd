"""The schedules: when each is due, and what became of its last run."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from overspan.tui.places.place import Place


class SchedulesPlace(Place):
    """The schedules: when each is due, and what became of its last run."""

    name_of_place = "schedules"

    def __init__(self) -> None:
        super().__init__(id="place-schedules")

    def compose(self) -> ComposeResult:
        yield Static("schedules")
