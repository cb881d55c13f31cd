"""The terminal UI beside a real daemon that changes, ends, is killed and comes back."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Awaitable, Callable

from tests.system.conftest import Span
from tests.unit.tui.queue_frames import read_screen
from tests.unit.tui.stories import settle
from textual.pilot import Pilot

from overspan import Client
from overspan.bridge.client.autostart import connect
from overspan.bridge.config.paths import find_paths
from overspan.tui.app import TopApp, TopOptions

Story = Callable[[TopApp, Pilot[int]], Awaitable[None]]


def play(span: Span, story: Story) -> None:
    """Run a story against the application with the daemon of the installation."""

    async def run() -> None:
        app = TopApp(lambda: Client(environment=span.environment), TopOptions())
        async with app.run_test(size=(100, 24)) as pilot:
            await story(app, pilot)

    asyncio.run(run())


def show(app: TopApp) -> dict[str, str]:
    """The states of the lines, by id."""
    return {line.node.ref: line.node.row.state for line in app.queue.table.lines}


def is_served(span: Span) -> bool:
    connection = connect(find_paths(span.environment), 5.0)
    if connection is not None:
        connection.close()
    return connection is not None


def test_what_happens_is_seen_and_the_first_look_starts_the_daemon(span: Span) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: is_served(span) and app.queue.table.empty.startswith("no job"))
        job = await asyncio.to_thread(span.wrap, "sleep 60", "--hold")
        await settle(pilot, lambda: show(app) == {str(job): "PENDING"})
        await asyncio.to_thread(span.run, "scontrol", "release", str(job))
        await settle(pilot, lambda: show(app) == {str(job): "RUNNING"})
        await asyncio.to_thread(span.run, "scancel", str(job))
        await settle(pilot, lambda: show(app) == {str(job): "CANCELLED"})

    assert not is_served(span)
    play(span, story)


def test_a_daemon_that_was_ended_stays_so_until_the_user_asks_for_one(span: Span) -> None:
    jobs = [span.wrap("sleep 60", "--hold") for _ in range(3)]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        table = app.queue.table
        await settle(pilot, lambda: len(table.lines) == 3)
        await pilot.press("down", "space")
        assert table.current is not None and table.current.node.ref == str(jobs[0])
        await asyncio.to_thread(span.run, "shutdown")
        await settle(pilot, lambda: app.lost is not None)
        since = app.lost.since if app.lost is not None else 0.0
        # Long enough for several tries.
        await settle(pilot, lambda: time.time() > since + 4)
        assert not is_served(span) and len(table.lines) == 3
        await pilot.press("r")
        await settle(pilot, lambda: "no daemon for <1m: one is starting" in read_screen(app))
        await settle(pilot, lambda: app.lost is None)
        assert is_served(span) and "no daemon" not in read_screen(app)
        assert table.current is not None and table.current.node.ref == str(jobs[0])
        assert [line.node.ref for line in table.marked] == [str(jobs[1])]
        other = await asyncio.to_thread(span.wrap, "sleep 60", "--hold")
        await settle(pilot, lambda: str(other) in show(app))

    play(span, story)


def test_a_daemon_that_is_killed_and_comes_back_is_found_again(span: Span) -> None:
    job = span.wrap("sleep 60", "--hold")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: show(app) == {str(job): "PENDING"})
        os.kill(span.daemon, signal.SIGKILL)
        await settle(pilot, lambda: app.lost is not None)
        await asyncio.to_thread(span.run, "scancel", str(job))
        await settle(pilot, lambda: app.lost is None)
        await settle(pilot, lambda: show(app) == {str(job): "CANCELLED"})

    play(span, story)
