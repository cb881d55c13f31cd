"""Stories of `span top` against a real daemon: the application on a screen, its lines, its dialogs and its notes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from tests.system.conftest import Span
from tests.unit.tui.order_stories import answer
from tests.unit.tui.queue_frames import read_screen
from tests.unit.tui.stories import settle
from textual.pilot import Pilot
from textual.widgets import TextArea

from overspan import Client
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.dialogs.edit_dialog import EditDialog
from overspan.tui.places.job_place import JobPlace
from overspan.tui.widgets.line_table import LineTable

LiveStory = Callable[["LiveQueue"], Awaitable[None]]


class LiveQueue:
    """The application, looked at and typed into as a user does."""

    def __init__(self, span: Span, app: TopApp, pilot: Pilot[int]) -> None:
        self.span, self.app, self.pilot = span, app, pilot

    @property
    def states(self) -> dict[str, str]:
        """The lines of the queue: the state by the id."""
        return {line.node.ref: line.node.row.state for line in self.app.queue.table.lines}

    @property
    def answers(self) -> list[str]:
        """The answers to orders, the newest first; the end of what is watched may come between."""
        return [entry.answer for entry in self.app.order_log if entry.order != "Watch"]

    async def until(self, holds: Callable[[], object]) -> None:
        """Wait until something holds; else tells what the screen shows."""
        try:
            await settle(self.pilot, holds)
        except AssertionError:
            raise AssertionError(f"it did not happen:\n{read_screen(self.app)}") from None

    async def until_state(self, ref: int | str, *states: str) -> None:
        """Wait until the line is in one of the states."""
        await self.until(lambda: self.states.get(str(ref)) in states)

    async def go_to(self, ref: int | str) -> None:
        """Put the cursor on a job's line."""
        place = self.app.place
        assert isinstance(place, JobPlace)
        table = place.query_one(LineTable)
        await self.until(lambda: str(ref) in [line.node.ref for line in table.lines])
        table.move_to(next(line.key for line in table.lines if line.node.ref == str(ref)))
        await self.pilot.pause()

    async def order(self, ref: int | str, key: str, *answers: str) -> str:
        """Press the key of an order on a line, answer its dialog, and wait for the daemon's answer."""
        await self.go_to(ref)
        given = len(self.answers)
        await self.pilot.press(key)
        if answers:
            await answer(self.pilot, *answers)
        await self.until(lambda: len(self.answers) > given)
        return self.answers[0]

    async def open_file(self, ref: int | str, key: str) -> TextArea:
        """Open the small file of an order that is edited."""
        await self.go_to(ref)
        await self.pilot.press(key)
        await self.until(lambda: isinstance(self.app.screen, EditDialog) and self.app.screen._seen)
        return self.app.screen.query_one(TextArea)


def write_values(area: TextArea, **values: str) -> None:
    """Change values in a file that is edited."""
    lines = area.text.splitlines()
    for key, value in values.items():
        place = next(place for place, line in enumerate(lines) if line.partition(":")[0] == key)
        lines[place] = f"{key}: {value}"
    area.text = "\n".join(lines)


def play_live(
    span: Span, story: LiveStory, options: TopOptions | None = None, size: tuple[int, int] = (120, 30)
) -> None:
    """Run a story as `span top` begins it."""

    async def run() -> None:
        app = TopApp(lambda: Client(environment=span.environment), options or TopOptions())
        async with app.run_test(size=size) as pilot:
            await story(LiveQueue(span, app, pilot))

    asyncio.run(run())
