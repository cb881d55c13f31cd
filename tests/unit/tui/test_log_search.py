"""Logs that are searched, and shown in part: stories with a source in memory."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

import pytest
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.log_stories import (
    fast_ticks,
    is_asked,
    make_source,
    notices,
    numbered,
    read_log,
    said,
    shown,
)
from tests.unit.tui.stories import settle
from textual.pilot import Pilot

from overspan.bridge.client.messages import Stream
from overspan.tui.logs.screen import LogScreen
from overspan.tui.logs.window import PART

__all__ = ["fast_ticks"]


def test_a_search_goes_from_match_to_match() -> None:
    lines = [f"line {number} error" if number % 50 == 7 else f"line {number}" for number in range(400)]
    source = make_source(*lines)
    source.search_block = 1000

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-1:] == ["line 399"])
        await pilot.press("slash", *"ERR", "backspace", "backspace", "backspace", *"err", "enter")
        await settle(pilot, lambda: screen.session.hit is not None)
        assert screen.session.hit is not None and screen.session.hit.line.text == "line 357 error"
        assert "line 357 error" in shown(screen)
        await settle(pilot, lambda: "/err: 8 lines" in said(screen))
        await pilot.press("n", "n")
        assert "line 257 error" in shown(screen)
        await pilot.press("N")
        assert screen.session.hit.line.text == "line 307 error"
        for _ in range(8):
            await pilot.press("n")
        assert screen.session.hit.line.text == "line 7 error" and "no older match" in notices(screen)
        assert count_marked(screen) == 1
        await pilot.press("escape")
        assert count_marked(screen) == 0 and screen.session.search is None
        assert isinstance(screen.app.screen, LogScreen)

    read_log(source, story)


def count_marked(screen: LogScreen) -> int:
    """Pieces of text that are marked as matches."""
    styles = [screen.view._style("match").bgcolor, screen.view._style("hit").bgcolor]
    strips = [screen.view.render_line(y) for y in range(screen.view.size.height)]
    return sum(segment.style is not None and segment.style.bgcolor in styles for strip in strips for segment in strip)


def test_a_search_reaches_what_is_not_here_and_is_left_at_any_time() -> None:
    count = 4 * PART // 100
    lines = [f"{number:06d} {'x' * 92}" for number in range(count)]
    lines[5] = "here it is"

    source = make_source(*lines)
    source.search_block = PART // 4

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) > 5)
        await pilot.press("slash", *"here", "enter")
        await settle(pilot, lambda: "here it is" in shown(screen))
        assert not screen.view.following and count_marked(screen) == 1
        await pilot.press("escape", "F")
        source.search_block, source.search_seconds = 500, 0.01
        source.searches.clear()
        await pilot.press("slash", *"nowhere", "enter", "escape")
        await settle(pilot, lambda: screen.session.search is None)
        asked = len(source.searches)
        await pilot.press("k", "j")
        assert 0 < asked <= len(source.searches) <= asked + 1 < source.files["1", screen.view.rows[0].key].size / 500

    read_log(source, story)


def test_a_search_in_the_middle_goes_up_from_there() -> None:
    count = 4 * PART // 100
    lines = [f"{number:06d} {'x' * 92}" for number in range(count)]
    for number in (100, count // 2 - 3000, count // 2 + 3000, count - 2):
        lines[number] = f"{number:06d} here"
    source = make_source(*lines)
    source.search_block = PART // 4

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) > 5)
        await pilot.press("percent_sign", "5", "0", "enter")
        await settle(pilot, lambda: abs(int(shown(screen)[0][:6]) - count // 2) < 9)
        await pilot.press("slash", *"here", "enter")
        await settle(pilot, lambda: f"{count // 2 - 3000:06d} here" in shown(screen))
        assert source.searches[0][1].end is not None and source.searches[0][1].end < 51 * count
        await pilot.press("N")
        await settle(pilot, lambda: f"{count // 2 + 3000:06d} here" in shown(screen))
        await pilot.press("n", "n")
        await settle(pilot, lambda: f"{100:06d} here" in shown(screen))

    read_log(source, story)


def test_only_matching_lines_are_shown_and_followed() -> None:
    source = make_source(*[f"step {number}" for number in range(50)], "an error", "step 50")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-1:] == ["step 50"])
        await pilot.press("ampersand", *"error", "enter")
        await settle(pilot, lambda: shown(screen) == ["an error"])
        source.write("1", b"more\nError two\n")
        await settle(pilot, lambda: shown(screen) == ["an error", "Error two"])
        await pilot.press("ampersand", *"!step", "enter")
        await settle(pilot, lambda: shown(screen) == ["an error", "more", "Error two"])
        await pilot.press("ampersand", *"nothing", "enter")
        await settle(pilot, lambda: "nothing found" in said(screen))
        assert any("no line matches" in text for text in shown(screen))
        await pilot.press("ampersand", "enter")
        await settle(pilot, lambda: "step 50" in shown(screen))

    read_log(source, story)


def test_a_wrong_pattern_is_said_and_nothing_is_lost() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) > 5)
        await pilot.press("slash", "left_parenthesis", "enter")
        assert any("no regular expression" in notice for notice in notices(screen))
        assert is_asked(screen) and screen.prompt.value == "("
        await pilot.press("escape")
        assert not is_asked(screen) and shown(screen)

    read_log(make_source(*numbered(50)), story)


def test_a_pattern_that_explodes_stops_nothing() -> None:
    source = make_source("a" * 60 + "!", *numbered(3))

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 4)
        begun = time.monotonic()
        await pilot.press("slash", *"(a+)+$")
        await settle(pilot, lambda: screen.view.slow)
        assert time.monotonic() - begun < 20
        await pilot.press("escape", "k")
        assert len(shown(screen)) == 4

    read_log(source, story)


def test_letters_do_nothing_but_stand_in_the_prompt() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) > 5)
        await pilot.press("slash", *"gwTqsvme")
        assert screen.prompt.value == "gwTqsvme" and screen.view.following
        assert not screen.view.options.wrap and isinstance(screen.app.screen, LogScreen)

    read_log(make_source(*numbered(50)), story)


@pytest.mark.parametrize("keys", [("ampersand", *"begins", "enter"), ("slash", *"begins", "enter")])
def test_a_search_that_is_typed_before_the_logs_are_known_begins_then(
    keys: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = FakeSource([job(1)])
    for task in ("trainer", "rollout"):
        source.write("1", f"{task} begins\nstep 1\n".encode(), task)
    known, streams = threading.Event(), source.streams
    known.set()

    def list_streams(ref: str, times: bool = False) -> list[Stream]:
        known.wait(30)
        return streams(ref, times)

    monkeypatch.setattr(source, "streams", list_streams)

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: screen.session.document is not None)
        known.clear()
        await pilot.press("right_square_bracket", *keys)
        assert screen.session.document is None
        known.set()
        await settle(pilot, lambda: screen.session.search is not None and screen.view._pattern is not None)
        if keys[0] == "ampersand":
            await settle(pilot, lambda: len(shown(screen)) == 1)
        else:
            await settle(pilot, lambda: screen.session.hit is not None)

    read_log(source, story)
