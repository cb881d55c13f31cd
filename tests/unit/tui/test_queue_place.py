"""The queue as it is shown: the tree, the cursor, filters; against a source in memory."""

from __future__ import annotations

from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.tui.app import TopApp


def test_the_cursor_stays_on_its_job_when_others_come_and_go() -> None:
    source = FakeSource([job(1), job(2), job(3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        table = app.queue.table
        await settle(pilot, lambda: len(table.lines) == 3)
        await pilot.press("down")
        current = table.current
        assert current is not None and current.node.ref == "2"
        source.put(job(4))
        await settle(pilot, lambda: len(table.lines) == 4)
        assert table.current is not None and table.current.node.ref == "2"
        source.drop(2)
        await settle(pilot, lambda: len(table.lines) == 3)
        assert table.current is not None and table.current.node.ref == "1"

    play(source, story)
