"""A place with lines of jobs: orders, logs and details are about those."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from typing import ClassVar

from textual import events
from textual.actions import SkipAction
from textual.binding import BindingType
from textual.widgets import Input

from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.actions.giving import start_order
from overspan.tui.actions.order_log_screen import OrderLogScreen
from overspan.tui.actions.orders import refuse_orders
from overspan.tui.actions.shell import open_shell, refuse_shells
from overspan.tui.actions.target import Target
from overspan.tui.detail.pane import BESIDE_FROM, DetailPane
from overspan.tui.detail.text_screen import TextScreen
from overspan.tui.keyboard.keys import bind
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.place import TopPlace
from overspan.tui.queue.tree import LineKey
from overspan.tui.widgets.line_table import LineTable


class JobPlace(TopPlace):
    """A list of jobs, with the detail pane."""

    BINDINGS: ClassVar[list[BindingType]] = [*bind("job"), *bind("detail")]

    def find_current(self) -> Target | None:
        """The job under the cursor."""
        raise NotImplementedError

    def list_targets(self) -> Sequence[Target]:
        """The marked jobs, those that the filter hides too; without marks the one under the cursor."""
        raise NotImplementedError

    @property
    def pane(self) -> DetailPane:
        return self.query_one(DetailPane)

    def action_describe(self) -> None:
        """Open the detail pane, or close it."""
        if self.pane.display:
            self._close_pane()
        else:
            self.pane.display = True
            self.refresh_bindings()
            self.describe_current()

    def on_resize(self, event: events.Resize) -> None:
        """Put the pane beside the list where there is room, else below it."""
        for pane in self.query(DetailPane):
            pane.set_class(event.size.width >= BESIDE_FROM, "-beside")

    def _open_pane(self) -> DetailPane:
        """The pane; without one that is open, another widget handles the key."""
        if not self.pane.display:
            raise SkipAction
        return self.pane

    def _close_pane(self) -> None:
        focused = self.pane.has_focus
        if self.pane.is_maximized:
            self.screen.minimize()
        self.pane.display = False
        self.refresh_bindings()
        if focused:
            self.show()

    def action_detail_section(self, by: int) -> None:
        """Go to the next section of the details, or the one before."""
        self._open_pane().go_to_section(by)

    def action_detail_scroll(self, by: int) -> None:
        """Scroll the details by lines."""
        self._open_pane().action_move(by)

    def action_detail_zoom(self) -> None:
        """Give the details the whole screen, or take it back."""
        pane = self._open_pane()
        if pane.is_maximized:
            self.screen.minimize()
            self.show()
        else:
            self.screen.maximize(pane, container=False)
            pane.focus()

    def action_detail_close(self) -> None:
        """Leave the full screen, or close the details."""
        if self._open_pane().is_maximized:
            self.action_detail_zoom()
        else:
            self._close_pane()

    def describe_current(self) -> None:
        """Show the job under the cursor in the pane, if that is open."""
        if self.pane.display:
            self.pane.describe(self.find_current())

    def action_logs(self) -> None:
        """Read the logs of the job under the cursor."""
        target = self.find_current()
        if target is not None:
            self.app.push_screen(LogScreen(target))

    def action_texts(self) -> None:
        """Read what the cluster of the job under the cursor was sent, its variables, and what was submitted."""
        target = self.find_current()
        if target is not None:
            self.app.push_screen(TextScreen(target))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """The details have keys while they are open, orders where they may be given.

        None counts while the user types: inputs leave some keys to others.
        """
        if action.startswith("detail_"):
            return bool(self.pane.display)
        refuse = {"order": refuse_orders, "shell": refuse_shells}.get(action)
        return refuse is None or not (refuse(self.top.options) or isinstance(self.app.focused, Input))

    def action_shell(self) -> None:
        """Open a shell beside the job under the cursor."""
        target = self.find_current()
        if target is not None:
            open_shell(self.top, target)

    def action_order(self, name: str) -> None:
        """Begin an order about the targets."""
        targets = self.list_targets()
        if targets:
            start_order(self.top, name, targets, self.list_shown())

    def list_shown(self) -> frozenset[LineKey]:
        """The lines that the list has now."""
        return frozenset(line.key for line in self.query_one(LineTable).lines)

    async def action_evaluations(self) -> None:
        """Show the evaluations of the checkpoints of the job under the cursor."""
        target = self.find_current()
        if target is not None:
            await self.top.show_evaluations(target.row.id)

    def action_watch(self) -> None:
        """Tell the user when the targets end, or no more."""
        targets = self.list_targets()
        if targets:
            self.top.watching.turn(targets)

    def drop_marks(self, keys: Collection[Hashable]) -> None:
        """What was ordered for these lines has been done: a mark stays where it failed."""
        self.query_one(LineTable).drop_marks(keys)

    def action_copy_id(self) -> None:
        """Send the ids of the targets to the terminal's clipboard."""
        targets = sorted(self.list_targets(), key=lambda target: target.key)
        ids = clean_text(" ".join(target.ref for target in targets))
        if ids:
            self.top.send_to_clipboard(ids, ids)

    def action_order_log(self) -> None:
        """Show what was ordered, and the answers."""
        self.app.push_screen(OrderLogScreen(self.top.order_log))
