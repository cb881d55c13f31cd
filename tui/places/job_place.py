"""A place with lines of jobs: orders, logs and details are about those."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import BindingType

from overspan.tui.actions.orders import start_order
from overspan.tui.actions.target import Target
from overspan.tui.detail.pane import DetailPane
from overspan.tui.keys import bind
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.place import Place


class JobPlace(Place):
    """A list of jobs, with the detail pane."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("job")]

    def find_current(self) -> Target | None:
        """The job under the cursor."""
        raise NotImplementedError

    def list_targets(self) -> Sequence[Target]:
        """The marked jobs, those that the filter hides too; without marks the one under the cursor."""
        raise NotImplementedError

    @property
    def pane(self) -> DetailPane:
        """The detail pane."""
        return self.query_one(DetailPane)

    def action_describe(self) -> None:
        """Open the detail pane, or close it."""
        self.pane.display = not self.pane.display
        self.describe_current()

    def describe_current(self) -> None:
        """Show the job under the cursor in the pane, if that is open."""
        if self.pane.display:
            self.pane.describe(self.find_current())

    def action_logs(self) -> None:
        """Read the logs of the job under the cursor."""
        target = self.find_current()
        if target is not None:
            self.app.push_screen(LogScreen(target))

    def action_order(self, name: str) -> None:
        """Begin an order about the targets."""
        targets = self.list_targets()
        if targets:
            start_order(self.top, name, targets)
