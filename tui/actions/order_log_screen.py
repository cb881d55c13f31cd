"""The screen of the order log: each order with its answer, the newest first."""

from __future__ import annotations

import time
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Static

from overspan.tui.actions.order_log import OrderEntry, OrderLog
from overspan.tui.keyboard.keys import bind


class OrderLogScreen(ModalScreen[None]):
    """Shows the log as it was when it was opened."""

    DEFAULT_CSS = """
    OrderLogScreen { align: center middle; }
    OrderLogScreen > Vertical {
        width: 90%; max-width: 120; height: auto; max-height: 80%; border: round $primary; padding: 0 1;
    }
    OrderLogScreen #order-log-title { height: 1; color: $text-muted; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bind("orders")]

    def __init__(self, log: OrderLog) -> None:
        super().__init__()
        # What has no answer yet is the newest of all that matters.
        self._entries = (*reversed(log.under_way), *log)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(Content(f"Orders: {len(self._entries)}, the newest first"), id="order-log-title")
            with VerticalScroll(can_focus=False):
                yield Static(Content("\n".join(map(write_entry, self._entries)) or "no order was given yet"))

    def on_resize(self) -> None:
        """Be as high as what it holds, where there is room."""
        scroll = self.query_one(VerticalScroll)
        lines = scroll.query_one(Static).get_content_height(self.size, self.size, max(1, scroll.size.width))
        scroll.styles.height = min(max(1, lines), max(2, self.size.height * 7 // 10))

    def action_close(self) -> None:
        """Go back."""
        self.dismiss()

    def action_scroll(self, by: int) -> None:
        """Scroll by lines."""
        self.query_one(VerticalScroll).scroll_relative(y=by, animate=False, immediate=True)

    def action_page(self, by: int) -> None:
        """Scroll by pages."""
        log = self.query_one(VerticalScroll)
        log.scroll_relative(y=by * max(1, log.size.height - 1), animate=False, immediate=True)


def write_entry(entry: OrderEntry) -> str:
    """An entry in a line: when, what, about what, and the answer; `!` where it failed."""
    at = time.strftime("%H:%M:%S", time.localtime(entry.at))
    about = f"{entry.target}: " if entry.target else ""
    return f"{at} {'!' if entry.failed else ' '} {entry.order}  {about}{entry.answer}"
