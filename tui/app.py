"""The application: the head, the places, and what comes from the daemon."""

from __future__ import annotations

import time
from typing import Any, ClassVar, cast

from rich.console import RenderableType
from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import ContentSwitcher, Footer

from overspan.bridge.client.records import JobFilter, QueueChanges, Stale
from overspan.tui.actions.order_log import OrderLog
from overspan.tui.feed import Lost, QueueFeed
from overspan.tui.head import Head, HeadFacts, PlaceTab
from overspan.tui.keys import bind, find_keys
from overspan.tui.options import TopOptions as TopOptions
from overspan.tui.places.clusters import ClustersPlace
from overspan.tui.places.history import HistoryPlace
from overspan.tui.places.nodes import NodesPlace
from overspan.tui.places.place import Place
from overspan.tui.places.queue import QueuePlace
from overspan.tui.places.schedules import SchedulesPlace
from overspan.tui.questions import Questions
from overspan.tui.queue.headline import describe_troubles
from overspan.tui.queue.shown import ask_enough
from overspan.tui.screen_changes import WrittenScreen
from overspan.tui.source import OpenSource


class TopApp(App[int]):
    """`span top`."""

    CSS_PATH = "top.tcss"
    TITLE = "span top"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("app")]
    PLACES: ClassVar[tuple[type[Place], ...]] = (QueuePlace, NodesPlace, HistoryPlace, ClustersPlace, SchedulesPlace)

    def __init__(self, open_source: OpenSource, options: TopOptions) -> None:
        super().__init__()
        self.options = ask_enough(options)
        self.clock_offset = 0.0
        """The daemon's clock minus this machine's, seconds."""
        self.stale: tuple[Stale, ...] = ()
        self.lost: Lost | None = None
        self.paused_since: float | None = None
        """Since when the display stands still, by this machine's clock."""
        self._open_source = open_source
        self._feed = self._make_feed(self.options.wanted)
        self.questions = Questions(open_source, self.call_later, self._feed.tried)
        self.order_log = OrderLog()
        self._written = WrittenScreen()

    def compose(self) -> ComposeResult:
        yield Head()
        with ContentSwitcher(initial="place-queue"):
            for make in self.PLACES:
                yield make()
        yield Footer(compact=True, show_command_palette=False)

    def on_mount(self) -> None:
        """Follow the queue."""
        self.queue.show()
        self.refresh_head()
        self.set_interval(1.0, self.refresh_head)
        self._feed.start()

    def on_unmount(self) -> None:
        """Let the threads go."""
        self._feed.close()
        self.questions.close()

    @property
    def queue(self) -> QueuePlace:
        """The queue, which is always there."""
        return self.query_one(QueuePlace)

    @property
    def place(self) -> Place:
        """The place in sight."""
        found = self.query_one(ContentSwitcher).visible_content
        assert isinstance(found, Place)
        return found

    # --- what the daemon tells ----------------------------------------------------------------------------------------

    def _take(self, changes: QueueChanges) -> None:
        self.clock_offset = changes.now - time.time()
        self.stale, self.lost = changes.stale, None
        self.queue.take(changes)

    def _lose(self, lost: Lost) -> None:
        self.lost = lost
        self.queue.redraw()

    def now(self) -> float:
        """The daemon's time."""
        return time.time() + self.clock_offset

    def _make_feed(self, wanted: JobFilter, may_start: bool = True) -> QueueFeed:
        return QueueFeed(self._open_source, self.call_later, wanted, self._take, self._lose, may_start)

    def follow(self, wanted: JobFilter) -> None:
        """Ask for other jobs, or for more of each row; what is shown stays until the answer is there."""
        self._feed.close()
        self._feed = self._make_feed(wanted, may_start=False)
        self._feed.pause(self.paused_since is not None)
        self._feed.start()

    def refresh_head(self) -> None:
        """Write the head again, where it reads otherwise."""
        tabs = [
            PlaceTab(key.keys, key.title, f"app.{key.action}", key.action == f"place({self.place.name_of_place!r})")
            for key in find_keys("app")
            if any(key.action == f"place({make.name_of_place!r})" for make in self.PLACES)
        ]
        marks = [
            *(["read-only"] if self.options.read_only else []),
            *(["paused"] if self.paused_since is not None else []),
        ]
        troubles = describe_troubles(self.stale, self.lost, self.now(), time.time())
        facts = HeadFacts(tabs, self.queue.counts, self.queue.scope.ended, troubles, marks, self.options.ascii)
        self.query_one(Head).show(facts)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Write what differs from what the terminal shows; without this hook Textual writes more, not other things."""
        super()._display(screen, cast("RenderableType | None", self._written.shorten(renderable)))

    # --- keys ---------------------------------------------------------------------------------------------------------

    def action_place(self, name: str) -> None:
        """Go to a place."""
        switcher = self.query_one(ContentSwitcher)
        if any(make.name_of_place == name for make in self.PLACES) and switcher.current != f"place-{name}":
            self.place.leave()
            switcher.current = f"place-{name}"
            self.place.show()
            self.refresh_head()

    def action_again(self) -> None:
        """Ask anew."""
        self._feed.retry()
        self.place.ask_again()

    def action_close_open(self) -> None:
        """Close what is open, the innermost first; on the queue alone there is nothing."""
        self._close_open()

    def action_pause(self) -> None:
        """Let the display stand still, or follow again."""
        self.paused_since = time.time() if self.paused_since is None else None
        self._feed.pause(self.paused_since is not None)
        self.refresh_head()

    def action_quit_top(self) -> None:
        """Close what is open, else end."""
        if not self._close_open():
            self.exit(0)

    def _close_open(self) -> bool:
        if self.place.close_open():
            return True
        if self.place is not self.queue:
            self.action_place("queue")
            return True
        return False
