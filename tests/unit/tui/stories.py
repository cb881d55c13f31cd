"""Stories of the application against a source in memory, without a terminal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.unit.tui.fake_source import FakeSource
from tests.unit.tui.queue_frames import read_screen
from textual.css.query import NoMatches
from textual.pilot import Pilot

from overspan.tui.app import TopApp, TopOptions

Story = Callable[[TopApp, Pilot[int]], Awaitable[None]]

SETTLE_SECONDS = 60.0


def play(source: FakeSource, story: Story, size: tuple[int, int] = (100, 24)) -> None:
    """Run a story against the application on a terminal of that size."""

    async def run() -> None:
        app = TopApp(source, TopOptions())
        async with app.run_test(size=size) as pilot:
            await story(app, pilot)

    asyncio.run(run())


async def settle(pilot: Pilot[int], holds: Callable[[], object]) -> None:
    """Wait until something holds."""
    end = time.monotonic() + SETTLE_SECONDS
    while not _holds(holds):
        assert time.monotonic() < end, f"it did not happen; the screen:\n{read_screen(pilot.app)}"
        await pilot.pause(0.01)


def _holds(fact: Callable[[], object]) -> object:
    """The fact; it does not hold while a screen that was just opened has no widgets yet."""
    try:
        return fact()
    except NoMatches:
        return False
