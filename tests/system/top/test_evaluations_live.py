"""Evaluations in `span top` against a real daemon: what comes while one looks, what a job printed, one more run."""

from __future__ import annotations

import pytest
from tests.system.checkpoint_groups import write_watch
from tests.system.conftest import Span
from tests.system.top.live_queue import LiveQueue, play_live
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import answer, read_notes

from overspan.tui.evaluations.plot_pane import PlotPane
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.evaluations import EvaluationsPlace

pytestmark = pytest.mark.shared_daemon

RUN = "save 1; save 2; until [ -e go ]; do sleep 0.1; done; save 3; until [ -e end ]; do sleep 0.1; done"


def list_checkpoints(place: EvaluationsPlace) -> list[tuple[str, str, object]]:
    """Name, state and score of each line below the watches."""
    return [(line.name, line.state, line.one.get("score")) for line in place.table.lines if line.one is not None]


async def go_to(live: LiveQueue, place: EvaluationsPlace, name: str) -> None:
    """Put the cursor on a checkpoint."""
    await live.until(lambda: name in [line.name for line in place.table.lines])
    place.table.move_to(next(line.key for line in place.table.lines if line.name == name))
    await live.pilot.pause()


def test_scores_come_while_one_looks_and_a_checkpoint_is_evaluated_again(span: Span) -> None:
    """TU06: from the queue to the scores and their plot, the log of one evaluation, and another run of it."""
    group = span.submit(write_watch(RUN, keys="max_parallel: 2", evaluate="[ {step} != 2 ] || exit 3"))

    async def story(live: LiveQueue) -> None:
        await live.until_state(group, "RUNNING")
        await live.go_to(group)
        await live.pilot.press("v")
        await live.until(lambda: isinstance(live.app.place, EvaluationsPlace))
        place = live.app.query_one(EvaluationsPlace)
        plot = place.query_one(PlotPane)
        await live.until(lambda: list_checkpoints(place) == [("step_2", "FAILED", None), ("step_1", "COMPLETED", 0.1)])
        await live.until(lambda: "NonZeroExitCode" in read_frame(place) and "★ best 0.1 at step_1" in plot.text)
        (span.folder / "go").touch()
        await live.until(lambda: list_checkpoints(place)[0] == ("step_3", "COMPLETED", 0.3))
        await live.until(lambda: "★ best 0.3 at step_3" in plot.text and "quality of train" in plot.text)
        await read_log(live, place)
        await go_to(live, place, "step_1")
        await live.pilot.press("e")
        await answer(live.pilot, "enter")
        assert not live.app.order_log
        await live.pilot.press("e")
        await answer(live.pilot, "y")
        await live.until(lambda: "quality of step_1: runs as job" in read_notes(live.app))
        await live.until(lambda: ("step_1 (run 1)", "COMPLETED", 0.1) in list_checkpoints(place))
        (span.folder / "end").touch()
        await live.until(lambda: place.table.lines[0].state == "COMPLETED")

    play_live(span, story, size=(120, 40))
    span.until(group, "COMPLETED")


async def read_log(live: LiveQueue, place: EvaluationsPlace) -> None:
    """Enter opens the details of the evaluation's job, `o` what it printed."""
    await go_to(live, place, "step_3")
    await live.pilot.press("enter")
    await live.until(lambda: "local:" in read_frame(place.pane) and "quality-3" in read_frame(place.pane))
    await live.until(lambda: "COMPLETED" in place.pane.text() and '{"accuracy": 0.3}' in place.pane.text())
    await live.until(lambda: place.query_one(PlotPane).text.splitlines()[0].endswith("★ best 0.3 at step_3"))
    await live.pilot.press("o")
    await live.until(lambda: isinstance(live.app.screen, LogScreen))
    await live.until(lambda: "accuracy" in read_frame(live.app.screen))
    await live.pilot.press("q", "d")
    await live.until(lambda: len(live.app.screen_stack) == 1 and not place.pane.display)
