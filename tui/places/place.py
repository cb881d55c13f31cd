"""Place: what fills the screen below the head: the queue, nodes, the history ..."""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import TYPE_CHECKING, ClassVar

from textual.containers import Vertical

if TYPE_CHECKING:
    from overspan.bridge.client.records import QueueChanges
    from overspan.tui.app import TopApp


class TopPlace(Vertical):
    """One of the application's places. `show` is called each time that it comes into sight, `leave` when it goes."""

    name_of_place: ClassVar[str] = ""

    @property
    def top(self) -> TopApp:
        """The application."""
        from overspan.tui.app import TopApp

        assert isinstance(self.app, TopApp)
        return self.app

    def show(self) -> None:
        """It is in sight: ask for what it needs, and take the focus."""

    def leave(self) -> None:
        """It is out of sight: ask for nothing."""

    def hear(self, changes: QueueChanges) -> None:
        """The event stream told of changes of the queue, while the place is in sight."""

    def ask_again(self) -> None:
        """The user wants the newest."""

    def drop_marks(self, keys: Collection[Hashable]) -> None:
        """What was ordered for these lines has been done: they need no mark any more."""

    def close_open(self) -> bool:
        """Close the innermost thing that is open; False where there is none."""
        return False
