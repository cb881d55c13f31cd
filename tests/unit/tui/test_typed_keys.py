"""Keys that come in one piece: each is for what the one before has opened or left, and none is lost."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.order_stories import begin
from tests.unit.tui.stories import play, settle
from textual.events import Key, Paste
from textual.keys import _character_to_key
from textual.pilot import Pilot
from textual.widgets import Input

from overspan.tui.app import TopApp
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.keyboard.help import HelpScreen
from overspan.tui.keyboard.palette import Palette
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.history import HistoryPlace

NAMES = {"\n": "enter", "\x1b": "escape", "\t": "tab"}


def send(app: TopApp, text: str) -> None:
    """All keys at once, as a terminal's one packet has them."""
    for letter in text:
        name = NAMES.get(letter) or _character_to_key(letter)
        app.post_message(Key(name, letter if letter.isprintable() else None))


def make_source() -> FakeSource:
    source = FakeSource([job(7), job(8, "sweep"), job(9, "eval", "PENDING")])
    source.write("9", b"one\ntwo\n" * 40)
    source.write("8", b"one\ntwo\n" * 40)
    source.write("7", b"one\ntwo\n" * 40)
    return source


def test_keys_behind_a_filter_are_the_lists() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        send(app, "/state:r\njG d")
        await settle(pilot, lambda: app.queue.pane.display)
        assert app.queue.filter_source == "state:r" and len(app.queue.table.marks) == 1
        assert app.queue.table.has_focus

    play(make_source(), story)


def test_a_command_of_the_palette_is_typed_ahead_and_what_is_behind_it_goes_where_it_led() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        send(app, ":history\n/since:3h\nS")
        await settle(pilot, lambda: isinstance(app.place, HistoryPlace) and app.place.reverse)
        assert app.query_one(HistoryPlace).filter.source == "since:3h"
        send(app, "1:help\n\x1b:")
        await settle(pilot, lambda: isinstance(app.screen, Palette) and app.screen.found)
        assert app.place is app.queue and not any(isinstance(each, HelpScreen) for each in app.screen_stack)

    play(make_source(), story)


def test_keys_behind_a_prompt_of_a_log_are_the_logs() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        send(app, "o/two\nw#")
        await settle(pilot, lambda: isinstance(app.screen, LogScreen) and app.screen.view.options.numbers)
        screen = app.screen
        assert isinstance(screen, LogScreen) and screen.view.options.wrap
        assert screen.prompt.value == "two" and screen.session.search is not None
        await settle(pilot, lambda: bool(screen.view.rows))
        send(app, "&one\nqq")
        await settle(pilot, lambda: len(app.screen_stack) == 1)

    play(make_source(), story)


def test_no_is_answered_and_the_list_goes_on_but_nothing_typed_ahead_says_yes() -> None:
    source = make_source()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        first = app.queue.table.current
        send(app, "c\nj")
        await settle(pilot, lambda: app.queue.table.current is not first)
        assert len(app.screen_stack) == 1
        send(app, "cy")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and app.screen._seen)
        await pilot.pause()
        assert isinstance(app.screen, OrderDialog) and source.orders == []
        # Who has seen it is obeyed.
        await pilot.press("y")
        await settle(pilot, lambda: bool(source.orders))
        # A value that was typed ahead is there; it is not sent.
        send(app, "t2:00:00\n")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and app.screen._seen)
        await settle(pilot, lambda: app.screen.query_one(Input).value == "2:00:00")
        await pilot.pause()
        assert len(source.orders) == 1
        await pilot.press("enter")
        await settle(pilot, lambda: len(source.orders) == 2)

    play(source, story)


def test_what_is_pasted_waits_its_turn() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        send(app, "/")
        app.post_message(Paste("sweep"))
        send(app, "\nd")
        await settle(pilot, lambda: app.queue.pane.display)
        assert app.queue.filter_source == "sweep"

    play(make_source(), story)


def test_a_screen_that_holds_keys_up_does_so_for_a_moment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        # No lap ever comes back.
        monkeypatch.setattr(app._typed, "_pass_on", lambda *words: None)
        send(app, "jj?")
        await settle(pilot, lambda: isinstance(app.screen, HelpScreen))

    play(make_source(), story)


def test_of_many_keys_few_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overspan.tui.keyboard.typed_keys.MOST_WAITING", 16)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        send(app, "41" * 25 + "?")
        most = 0

        def is_done() -> bool:
            nonlocal most
            most = max(most, len(app._typed._waiting))
            return isinstance(app.screen, HelpScreen)

        await settle(pilot, is_done)
        assert most <= 17 and app._typed._waits <= 17

    play(make_source(), story)


def test_a_key_alone_waits_for_nothing() -> None:
    waits: list[Any] = []

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.pause()
        waits.append(app._typed._waits)
        for _ in range(5):
            await pilot.press("j")
        waits.append(app._typed._waits)

    play(make_source(), story)
    assert waits[0] == waits[1]


def test_what_is_typed_behind_the_end_is_for_nobody() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        # As it is when the screens are gone, and keys of the same piece still wait.
        stack, screens = app._screen_stack, app.screen_stack
        stack.clear()
        try:
            await app._hand_on(Key("j", "j"))
            await app._hand_on(Paste("j"))
        finally:
            stack.extend(screens)

    play(make_source(), story)
