"""What the stories of logs have in common: a source, the screen that is opened, what it shows and says."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from tests.unit.tui import fake_source
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import Static

from overspan.tui.app import TopApp
from overspan.tui.logs.screen import LogScreen

NOW = fake_source.NOW - 1000
"""When the logs were written."""
LogStory = Callable[[LogScreen, Pilot[int]], Awaitable[None]]


@pytest.fixture(autouse=True)
def fast_ticks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for what was written ten times a second."""
    monkeypatch.setattr("overspan.tui.logs.screen.TICK_SECONDS", 0.1)


def read_log(source: FakeSource, story: LogStory, size: tuple[int, int] = (80, 24)) -> None:
    """Open the log of the first job, and play."""

    async def run(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: app.queue.table.current is not None)
        await pilot.press("o")
        await settle(pilot, lambda: isinstance(app.screen, LogScreen) and app.screen.is_mounted)
        screen = app.screen
        assert isinstance(screen, LogScreen)
        await settle(pilot, lambda: screen.session.silence != "asking the daemon...")
        await story(screen, pilot)

    play(source, run, size)


def shown(screen: LogScreen) -> list[str]:
    """The rows of the lines, as they are painted, without the bar."""
    view = screen.view
    texts = [view.render_line(y).text[:-1].rstrip() for y in range(view.size.height)]
    while texts and not texts[-1]:
        texts.pop()
    return texts


def said(screen: LogScreen, where: str = "#lines-status") -> str:
    """What a line around the log says."""
    return str(screen.query_one(where, Static).content)


def is_asked(screen: LogScreen) -> bool:
    """Whether a prompt is open."""
    return bool(screen.query_one("#lines-ask").display)


def notices(screen: LogScreen) -> list[str]:
    """What was told by the way."""
    return [notice.message for notice in screen.app._notifications]


def make_source(*lines: str, first: int = 1) -> FakeSource:
    source = FakeSource([job(first)])
    source.write(str(first), "".join(line + "\n" for line in lines).encode())
    return source


def numbered(count: int, begin: int = 0) -> list[str]:
    return [f"line {number}" for number in range(begin, begin + count)]
