"""The application: the head, the places, and what comes from the daemon."""

from __future__ import annotations

import time
from typing import ClassVar, NamedTuple

from textual.app import App, ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import ContentSwitcher, Footer, Static

from overspan.bridge.client.records import JobFilter, QueueChanges, Stale
from overspan.bridge.client.terminal_texts import clean_text
from overspan.bridge.model.state_words import CODES
from overspan.tui.feed import Lost, QueueFeed
from overspan.tui.keys import bind
from overspan.tui.places.clusters import ClustersPlace
from overspan.tui.places.history import HistoryPlace
from overspan.tui.places.nodes import NodesPlace
from overspan.tui.places.place import Place
from overspan.tui.places.queue import QueuePlace
from overspan.tui.places.schedules import SchedulesPlace
from overspan.tui.questions import Questions
from overspan.tui.source import OpenSource


class TopOptions(NamedTuple):
    """What the command line and the configuration choose."""

    wanted: JobFilter = JobFilter()
    filter: str = ""
    read_only: bool = False
    ascii: bool = False
    web: bool = False
    """In a browser: no shell, pager or editor."""
    web_actions: bool = False


class TopApp(App[int]):
    """`span top`."""

    CSS_PATH = "top.tcss"
    TITLE = "span top"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("app")]
    PLACES: ClassVar[tuple[type[Place], ...]] = (QueuePlace, NodesPlace, HistoryPlace, ClustersPlace, SchedulesPlace)

    def __init__(self, open_source: OpenSource, options: TopOptions) -> None:
        super().__init__()
        self.options = options
        self.clock_offset = 0.0
        """The daemon's clock minus this machine's, seconds."""
        self.stale: tuple[Stale, ...] = ()
        self.lost: Lost | None = None
        self.questions = Questions(open_source, self.call_later)
        self._feed = QueueFeed(open_source, self.call_later, options.wanted, self._take, self._lose)
        self._head = ""

    def compose(self) -> ComposeResult:
        yield Static(id="head")
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
        self.refresh_head()

    def refresh_head(self) -> None:
        """Write the head again, where it is another one."""
        text = self._describe()
        if text != self._head:
            self._head = text
            self.query_one("#head", Static).update(Content(text))

    def _describe(self) -> str:
        counts = self.queue.jobs.count_states()
        states = "  ".join(f"{count} {CODES.get(state, state)}" for state, count in sorted(counts.items()))
        parts = ["span top", states]
        if self.lost is not None:
            parts.append(f"no daemon for {time.time() - self.lost.since:.0f} s: {clean_text(self.lost.why)}")
        now = time.time() + self.clock_offset
        parts += [
            f"{clean_text(one.cluster)} {now - one.since:.0f} s old: {clean_text(one.message)}" for one in self.stale
        ]
        return "  │  ".join(part for part in parts if part)

    # --- keys ---------------------------------------------------------------------------------------------------------

    def action_place(self, name: str) -> None:
        """Go to a place."""
        switcher = self.query_one(ContentSwitcher)
        if any(make.name_of_place == name for make in self.PLACES) and switcher.current != f"place-{name}":
            self.place.leave()
            switcher.current = f"place-{name}"
            self.place.show()

    def action_again(self) -> None:
        """Ask anew."""
        self._feed.retry()
        self.place.ask_again()

    def action_quit_top(self) -> None:
        """Close the filter, leave the place, or end."""
        if self.place is not self.queue:
            self.action_place("queue")
        elif not self.queue.close_filter():
            self.exit(0)
