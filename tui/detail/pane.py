"""The detail pane."""

from __future__ import annotations

from textual.widgets import Static

from overspan.tui.actions.target import Target


class DetailPane(Static):
    """What is known of the job under the cursor."""

    DEFAULT_CSS = "DetailPane { height: 40%; border-top: solid $panel; display: none; }"

    def describe(self, target: Target | None) -> None:
        """Show another job, or none."""
        self.update("" if target is None else target.label)
