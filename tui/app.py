"""The application: the head, the places, and what comes from the daemon."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, cast

from rich.console import RenderableType
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.dom import DOMNode
from textual.driver import Driver
from textual.filter import LineFilter
from textual.screen import Screen
from textual.timer import Timer
from textual.widgets import ContentSwitcher

from overspan.bridge.client.records import JobFilter, QueueChanges, Stale
from overspan.bridge.client.terminal_texts import clean_text
from overspan.tui.actions.order_log import OrderLog
from overspan.tui.actions.watching import ASK_SECONDS, Watching
from overspan.tui.daemon.error_words import word_error
from overspan.tui.daemon.feed import Lost, QueueFeed
from overspan.tui.daemon.questions import Questions
from overspan.tui.daemon.source import OpenSource
from overspan.tui.head import Head, HeadFacts, PlaceTab
from overspan.tui.keyboard.help import HelpScreen, pair_active
from overspan.tui.keyboard.hints import KeyHints
from overspan.tui.keyboard.keys import bind, find_keys
from overspan.tui.keyboard.palette import (
    KnownNames,
    Palette,
    PaletteCommand,
    join_filter,
    list_names,
    list_view_commands,
)
from overspan.tui.keyboard.typed_keys import TypedKeys
from overspan.tui.options import TopOptions as TopOptions
from overspan.tui.places.clusters import ClustersPlace
from overspan.tui.places.evaluations import EvaluationsPlace
from overspan.tui.places.history import HistoryPlace
from overspan.tui.places.nodes import NodesPlace
from overspan.tui.places.place import TopPlace
from overspan.tui.places.pools import PoolsPlace
from overspan.tui.places.queue import QueuePlace
from overspan.tui.places.schedules import SchedulesPlace
from overspan.tui.queue.headline import describe_troubles
from overspan.tui.queue.shown import ask_enough
from overspan.tui.terminal.clipboard import write_clipboard
from overspan.tui.terminal.driver import TerminalDriver
from overspan.tui.terminal.line_filter import LineGuard
from overspan.tui.terminal.screen_changes import WrittenScreen
from overspan.tui.terminal.terminal import Colours
from overspan.tui.terminal.themes import NAMES, OWN, SHORT, find_theme
from overspan.tui.widgets.top_screen import TopScreen

TROUBLE_SECONDS = 20.0
"""How long the note about a wrong configuration stands; help has it too."""


class TopApp(App[int], inherit_bindings=False):
    """`span top`."""

    CSS_PATH = "top.tcss"
    TITLE = "span top"
    ENABLE_COMMAND_PALETTE = False
    ALLOW_IN_MAXIMIZED_VIEW = "Head,KeyHints"
    BINDINGS: ClassVar[list[BindingType]] = [*bind("app")]
    PLACES: ClassVar[tuple[type[TopPlace], ...]] = (
        QueuePlace,
        EvaluationsPlace,
        PoolsPlace,
        NodesPlace,
        HistoryPlace,
        ClustersPlace,
        SchedulesPlace,
    )

    def __init__(self, open_source: OpenSource, options: TopOptions, driver_class: type[Driver] | None = None) -> None:
        super().__init__(driver_class=driver_class)
        self.options = ask_enough(options)
        self.failure: Exception | None = None
        """What ended the application, if it was a fault."""
        self._guard = LineGuard(colours=options.traits.colours is not Colours.NONE, ascii_only=options.ascii)
        self._dress()
        self.clock_offset = 0.0
        """The daemon's clock minus this machine's, seconds."""
        self.stale: tuple[Stale, ...] = ()
        self.lost: Lost | None = None
        self.paused_since: float | None = None
        """Since when the display stands still, by this machine's clock."""
        self._open_source = open_source
        self._feed = self._make_feed(self.options.wanted)
        self.questions = Questions(open_source, self._deliver, self._feed.tried)
        self.order_log = OrderLog()
        self.watching = Watching(self)
        self._written = WrittenScreen()
        self._typed = TypedKeys(self, self._hand_on)
        self.acted_at = 0.0
        """When the user pressed or clicked what is being done, by the monotonic clock."""
        self._making = asyncio.Lock()

    def get_default_screen(self) -> Screen[Any]:
        """The screen of the places."""
        return TopScreen(id="_default")

    def compose(self) -> ComposeResult:
        yield Head()
        # The other places are made when the user first goes there: their styles would cost half of a start.
        with ContentSwitcher(initial="place-queue"):
            yield QueuePlace()
        yield KeyHints(self.options.ascii)

    def on_mount(self) -> None:
        """Follow the queue."""
        if self.options.troubles:
            text = "\n".join(map(clean_text, self.options.troubles))
            self.notify(text, title="configuration", severity="warning", timeout=TROUBLE_SECONDS, markup=False)
        self.app_resume_signal.subscribe(self, self._paint_anew, immediate=True)
        self.queue.show()
        self.refresh_head()
        self.set_interval(1.0, self._tick)
        self.set_interval(ASK_SECONDS, self.watching.ask)
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
    def place(self) -> TopPlace:
        """The place in sight."""
        found = self.query_one(ContentSwitcher).visible_content
        assert isinstance(found, TopPlace)
        return found

    # --- looks and ends -----------------------------------------------------------------------------------------------

    def _dress(self) -> None:
        """Choose theme and keys, before anything is painted."""
        self.animation_level = "none"
        for theme in OWN:
            self.register_theme(theme)
        self.no_color = self.options.traits.colours is Colours.NONE
        self.theme = find_theme(self.options.theme, self.options.traits)
        self.set_class(self.options.ascii, "-ascii", update=False)
        self.set_keymap(dict(self.options.keymap))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """What happens to each line before it is written."""
        # NO_COLOR means none here, not Textual's grey.
        return [self._guard] if self.no_color else [*super().get_line_filters(), self._guard]

    def handle_bindings_clash(self, clashed_bindings: set[Binding], node: DOMNode) -> None:
        """Nothing: clashes were told and taken out when the keys were read; an action with two keys looks like one."""

    def set_timer(self, *words: Any, **named: Any) -> Timer:
        """Textual's timer, which also fires late. Textual's own never does: a process that is held up for longer than
        the delay loses it, and with it the terminal's new size."""
        timer = super().set_timer(*words, **named)
        timer._skip = False
        return timer

    def _handle_exception(self, error: Exception) -> None:
        if self._exit:
            # What was typed before the end finds widgets that are gone. It ends as it was to end.
            self._close_messages_no_wait()
            return
        self.failure = self.failure or error
        super()._handle_exception(error)
        # The command tells it, once the terminal is as it was.
        self._exit_renderables.clear()

    def _fatal_error(self) -> None:
        self._close_messages_no_wait()

    # --- what the daemon tells ----------------------------------------------------------------------------------------

    def _deliver(self, give: Callable[[], None]) -> None:
        """Have what a thread was told be taken in the application's own."""
        self.call_later(self._give_while_shown, give)

    def _give_while_shown(self, give: Callable[[], None]) -> None:
        # At the end the widgets go first.
        if self.is_running:
            give()

    def _take(self, changes: QueueChanges) -> None:
        self.clock_offset = changes.now - time.time()
        self.stale, self.lost = changes.stale, None
        self.queue.take(changes)
        self.place.hear(changes)
        self.watching.look()

    def _lose(self, lost: Lost) -> None:
        known = self.lost is not None and self.lost.why == lost.why
        self.lost = lost
        told_below = lost.unstarted and self.queue.counts is not None
        if (lost.present or told_below) and not known:
            # The line of troubles has no room for what helps.
            text = clean_text(word_error(lost.why, lost.remedy))
            self.notify(text, severity="error", timeout=TROUBLE_SECONDS, markup=False)
        self.queue.redraw()

    def _tick(self) -> None:
        """What changes with the time alone."""
        self.refresh_head()
        if isinstance(self._driver, TerminalDriver):
            self._driver.check_size()

    def now(self) -> float:
        """The daemon's time."""
        return time.time() + self.clock_offset

    def _make_feed(self, wanted: JobFilter, may_start: bool = True) -> QueueFeed:
        return QueueFeed(self._open_source, self._deliver, wanted, self._take, self._lose, may_start)

    def follow(self, wanted: JobFilter) -> None:
        """Ask for other jobs, or for more of each row; what is shown stays until the answer is there."""
        self._feed.close()
        self._feed = self._make_feed(wanted, may_start=False)
        self._feed.pause(self.paused_since is not None)
        self._feed.start()

    def refresh_head(self) -> None:
        """Write the head again, where it reads otherwise."""
        if not self.is_running or not all(self.query(name) for name in ("Head", "ContentSwitcher")):
            # The last answers come while the screen is taken down.
            return
        tabs = [
            PlaceTab(key.keys, key.title, f"app.{key.action}", key.action == f"place({self.place.name_of_place!r})")
            for key in find_keys("app")
            if any(key.action == f"place({make.name_of_place!r})" for make in self.PLACES)
        ]
        marks = [
            *(["read-only"] if self.options.read_only else []),
            *(["paused"] if self.paused_since is not None else []),
            *([f"{count} watched"] if (count := len(self.watching.watched)) else []),
            *([f"{late} unanswered"] if (late := self.order_log.count_unanswered(self.now())) else []),
        ]
        troubles = describe_troubles(self.stale, self.lost, self.now(), time.time())
        facts = HeadFacts(tabs, self.queue.counts, self.queue.scope.ended, troubles, marks, self.options.ascii)
        self.query_one(Head).show(facts)

    def _display(self, screen: Screen[Any], renderable: RenderableType | None) -> None:
        """Write what differs from what the terminal shows; without this hook Textual writes more, not other things."""
        super()._display(screen, cast("RenderableType | None", self._written.shorten(renderable)))

    def _paint_anew(self, app: App[Any]) -> None:
        """Paint everything: the shell or another program has had the terminal."""
        del app
        self._written.forget()
        self.screen.refresh(layout=True)

    # --- keys ---------------------------------------------------------------------------------------------------------

    async def on_event(self, event: events.Event) -> None:
        """Hand on what is typed, one key after another."""
        if isinstance(event, (events.Key, events.Paste)) and not event.is_forwarded:
            await self._typed.take(event)
        else:
            await self._hand_on(event)

    async def _hand_on(self, event: events.Event) -> None:
        if isinstance(event, (events.InputEvent, events.Paste)) and not self.screen_stack:
            # The application ends: keys typed behind the one that ended it are dropped.
            return
        if isinstance(event, (events.Key, events.MouseDown)) and not event.is_forwarded:
            self.acted_at = event.time
        await super().on_event(event)

    async def action_place(self, name: str) -> None:
        """Go to a place."""
        make = next(make for make in self.PLACES if make.name_of_place == name)
        # A key and a place may both go there at once.
        async with self._making:
            if not self.query(make):
                await self.query_one(ContentSwitcher).add_content(make())
        self.show_place(name)

    def show_place(self, name: str) -> None:
        """Go to a place that has been made: the queue always is."""
        switcher = self.query_one(ContentSwitcher)
        if switcher.current != f"place-{name}":
            self.place.leave()
            switcher.current = f"place-{name}"
            self.place.show()
            self.refresh_head()

    async def show_evaluations(self, job: int) -> None:
        """Go to the evaluations of one job's checkpoints."""
        await self.action_place("evaluations")
        self.query_one(EvaluationsPlace).look_at(job)

    def action_again(self) -> None:
        """Ask anew."""
        self._feed.retry()
        self.place.ask_again()

    def action_close_open(self) -> None:
        """Close what is open, the innermost first; on the queue alone, the notes."""
        if not self._close_open():
            self.clear_notifications()

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
        if len(self.screen_stack) > 1:
            self.pop_screen()
            return True
        if self.place.close_open():
            return True
        if self.place is not self.queue:
            self.show_place("queue")
            return True
        return False

    def action_interrupt(self) -> None:
        """Copy what is selected; else close an open dialog; else end."""
        text = getattr(self.focused, "selected_text", "") or self.screen.get_selected_text()
        if text:
            self.copy_to_clipboard(text)
        elif self.screen.is_modal:
            self.pop_screen()
        else:
            self.exit(0)

    def copy_to_clipboard(self, text: str) -> None:
        """Send a text to the terminal's clipboard, or say that it is too long."""
        self.send_to_clipboard(text)

    def send_to_clipboard(self, text: str, sent: str = "") -> None:
        """Send a text to the terminal's clipboard and say what was `sent`, or that it is too long."""
        # The multiplexer of a server is not that of the browser.
        sequence = write_clipboard(text, {} if self.options.web else os.environ)
        if not sequence:
            self.notify("too long for a terminal's clipboard: select a part", severity="warning", markup=False)
            return
        if self._driver is not None:
            self._clipboard = text
            self._driver.write(sequence)
        if sent:
            self.notify(sent, title="sent to the terminal's clipboard", markup=False)

    def action_help(self) -> None:
        """What the keys do here."""
        self.push_screen(HelpScreen(self.screen.active_bindings, self.options.troubles, self.options.ascii))

    # --- the line after `:` -------------------------------------------------------------------------------------------

    def action_palette(self) -> None:
        """Go somewhere by its name."""
        rows = [node.row for node in self.queue.jobs]
        names = KnownNames(
            sorted({row.cluster for row in rows if row.cluster}),
            sorted({row.user for row in rows if row.user}),
            (*SHORT, *NAMES),
        )
        active = pair_active(self.screen.active_bindings)
        commands = [*list_view_commands(active, ascii_only=self.options.ascii), *list_names(names)]
        self.push_screen(Palette(commands), self._obey)

    def _obey(self, command: PaletteCommand | None) -> None:
        if command is not None:
            self.call_later(self.run_action, ("", command.action, command.words), self)

    async def action_run_binding(self, name: str) -> None:
        """Do what the key of an action would do here."""
        for each in self.screen.active_bindings.values():
            if each.binding.id == name:
                await self.run_action(each.binding.action, each.node)
                return

    def action_filter_by(self, field: str, value: str) -> None:
        """Show only some jobs of the queue."""
        while len(self.screen_stack) > 1:
            self.pop_screen()
        self.show_place("queue")
        self.queue.set_filter(join_filter(self.queue.filter_source, field, value))

    def action_choose_theme(self, name: str) -> None:
        """Other colours."""
        self.theme = find_theme(name, self.options.traits)
