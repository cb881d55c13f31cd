"""The other places of `span top` against a real daemon: history, clusters, schedules; logs that leave the screen."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live
from tests.system.top.terminal import open_terminal
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
        await live.until(lambda: f"local:{old} old: submitted again" in read_frame(live.app.screen))

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


def test_a_log_is_saved_read_in_the_pager_and_in_the_editor_and_its_id_copied(span: Span) -> None:
    """TU04: what leaves the screen is what the job has printed; the terminal comes back each time."""
    job = span.wrap("echo first; seq 2000; echo last", "-J", "fit")
    span.until(job, "COMPLETED")
    seen, program, saved, go = (Path(span.folder, name) for name in ("seen", "program", "saved.log", "go"))
    wait = f"until [ -e {go} ]; do sleep 0.05; done"
    program.write_text(f'#!/bin/sh\necho "$PROGRAM $(tail -n 1 "$1")" >>{seen}; {wait}\n')
    program.chmod(0o755)
    own = {"PAGER": f"env PROGRAM=pager {program}", "VISUAL": f"env PROGRAM=editor {program}"}
    with open_terminal(["top"], {**span.environment, "TERM": "xterm", **own}) as terminal:
        terminal.wait_for("JOBID", "fit")
        terminal.press("y")
        copied = base64.b64encode(str(job).encode()).decode()
        terminal.wait_shown(lambda screen: any(f"52;c;{copied}" in text for text in screen.strings), "it is not copied")
        terminal.press("o")
        terminal.wait_for("last", "the end: ")
        terminal.press("v")
        span.wait_until(lambda: seen.exists() and seen.read_text() == "pager last\n", 20, "the pager to have the log")
        # Typed for the pager, which did not read it: it would leave the log and the application.
        terminal.press("qqy\r")
        go.touch()
        terminal.wait_shown(lambda screen: screen.taken == 2, "the pager does not give the terminal back")
        terminal.wait_for("last", "the end: ")
        terminal.press("V")
        span.wait_until(lambda: seen.read_text() == "pager last\neditor last\n", 20, "the editor to have the log")
        terminal.wait_shown(lambda screen: screen.taken == 3, "the editor does not give the terminal back")
        terminal.wait_for("last", "the end: ")
        # All in one packet, as somebody types who knows the way: ctrl+u clears the name that is proposed.
        terminal.press("s\x15" + f"{saved}\r")
        whole = "first\n" + "".join(f"{number}\n" for number in range(1, 2001)) + "last\n"
        terminal.wait_for("KiB saved")
        assert saved.read_text() == whole
        terminal.press("qq")
        assert terminal.wait_end() == 0 and terminal.restored and terminal.screen.clean
