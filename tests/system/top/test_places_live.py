"""The other places of `span top` against a real daemon: history, clusters, schedules; logs that leave the screen."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live
from tests.system.top.top_stories import play_day
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import answer, read_notes

from overspan.tui.actions.order_log_screen import OrderLogScreen
from overspan.tui.clusters.check import CheckScreen
from overspan.tui.places.clusters import ClustersPlace
from overspan.tui.places.history import HistoryPlace
from overspan.tui.places.schedules import SchedulesPlace

pytestmark = pytest.mark.shared_daemon


def test_a_day_with_a_group(span: Span) -> None:
    """TU03, TU04, UX04: on this machine, what the rigs play too."""
    play_day(span, span.submit, "rollout begins")


def test_the_history_is_asked_by_its_filter_and_takes_orders(span: Span) -> None:
    """TU05: what has ended is found again, read, copied, and submitted once more; the order log has it."""
    old = span.wrap("echo done", "-J", "old")
    other = span.wrap("exit 3", "-J", "other")
    span.until(old, "COMPLETED")
    span.until(other, "FAILED")

    async def story(live: LiveQueue) -> None:
        await live.pilot.press("5")
        await live.until(lambda: isinstance(live.app.place, HistoryPlace))
        place = live.app.query_one(HistoryPlace)
        await live.until(lambda: "old" in read_frame(place) and "other" in read_frame(place))
        await live.pilot.press("slash", *"state:cd name:^old", "enter")
        await live.until(lambda: [line.node.ref for line in place.table.lines][:1] == [str(old)])
        assert "other" not in read_frame(place.table)
        await live.go_to(old)
        await live.pilot.press("d")
        await live.until(lambda: "Output" in place.pane.text() and "done" in place.pane.text())
        await live.pilot.press("d", "y")
        await live.until(lambda: live.app._clipboard == str(old))
        await live.open_file(old, "n")
        await live.pilot.press("ctrl+s")
        await live.until(lambda: live.answers and live.answers[0].startswith("submitted again as local:"))
        await live.until(lambda: len(live.app.screen_stack) == 1)
        await live.pilot.press("L")
        await live.until(lambda: isinstance(live.app.screen, OrderLogScreen))
        assert f"local:{old} old: submitted again" in read_frame(live.app.screen)

    play_live(span, story, size=(140, 40))


def test_a_cluster_is_checked_and_its_jobs_are_shown(span: Span) -> None:
    """UX04: what works there, in the words of `span check`; `J` goes to its jobs."""
    job = span.wrap("true", "-H", "-J", "later")

    async def story(live: LiveQueue) -> None:
        await live.pilot.press("6")
        await live.until(lambda: isinstance(live.app.place, ClustersPlace))
        place = live.app.query_one(ClustersPlace)
        await live.until(lambda: "local*" in read_frame(place) and " up " in read_frame(place))
        await live.pilot.press("enter")
        await live.until(lambda: isinstance(live.app.screen, CheckScreen))
        await live.until(
            lambda: "Check of local: " in read_frame(live.app.screen) and "ok" in read_frame(live.app.screen)
        )
        await live.pilot.press("escape", "J")
        await live.until(lambda: live.app.place is live.app.queue)
        assert live.app.queue.filter_source == "cluster:local"
        await live.until(lambda: str(job) in live.states)

    play_live(span, story)


def test_a_schedule_is_paused_resumed_run_and_deleted(span: Span) -> None:
    """TU05: each by its key; what makes work or loses it asks first."""
    file = Path(span.folder, "nightly.yaml")
    file.write_text("name: nightly\ncron: 0 0 1 1 *\nresources: {cpus: 0.1}\nrun: sleep 300\n")
    span.run("submit", str(file))

    async def story(live: LiveQueue) -> None:
        await live.pilot.press("7")
        await live.until(lambda: isinstance(live.app.place, SchedulesPlace))
        place = live.app.query_one(SchedulesPlace)
        await live.until(lambda: "nightly" in read_frame(place))
        await live.pilot.press("H")
        await live.until(lambda: "paused" in read_frame(place.table))
        await live.pilot.press("U")
        await live.until(lambda: "paused" not in read_frame(place.table))
        await live.pilot.press("n")
        await answer(live.pilot, "enter")
        assert "RUNNING" not in live.states.values()
        await live.pilot.press("n")
        await answer(live.pilot, "y")
        await live.until(lambda: "RUNNING" in live.states.values())
        await live.pilot.press("D")
        await answer(live.pilot, "y")
        await live.until(lambda: not place.table.lines)
        assert "no schedule" in span.run("cron", "list", check=False).stderr + place.table.empty
        assert "RUNNING" in live.states.values() and "error" not in read_notes(live.app)

    play_live(span, story)
