"""Timers of the application on a machine that holds it up."""

from __future__ import annotations

from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.tui.app import TopApp


def test_a_timer_whose_time_is_over_before_it_is_looked_at_fires() -> None:
    fired: list[bool] = []

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        app.set_timer(1e-9, lambda: fired.append(True))
        await settle(pilot, lambda: fired)

    play(FakeSource([job(7)]), story)
