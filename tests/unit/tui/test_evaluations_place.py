"""The place of evaluations: what it shows and asks, where Enter leads, and a checkpoint that is evaluated again."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest
from tests.unit.tui.fake_source import evaluation, job, watch
from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import HOSTILE, Lab, make_lab
from tests.unit.tui.order_stories import answer, read_notes
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.model.errors import Conflict, Unreachable
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.evaluations.plot_pane import PlotPane
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.evaluations import EvaluationsPlace
from overspan.tui.queue.tree import LineKey


async def open_evaluations(app: TopApp, pilot: Pilot[int], count: int = 14) -> EvaluationsPlace:
    await pilot.press("2")
    await settle(pilot, lambda: isinstance(app.place, EvaluationsPlace))
    place = app.query_one(EvaluationsPlace)
    await settle(pilot, lambda: len(list_names(place)) == count and not place._under_way)
    return place


def list_names(place: EvaluationsPlace) -> list[str]:
    return [line.name for line in place.table.lines]


async def go_to(place: EvaluationsPlace, pilot: Pilot[int], checkpoint: str) -> None:
    key = next(line.key for line in place.table.lines if line.key.checkpoint == checkpoint)
    assert place.table.move_to(key)
    await pilot.pause()


def test_the_plot_follows_the_cursor_and_marks_the_best_score() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        plot = place.query_one(PlotPane)
        assert "gsm8k of rl-math" in plot.text and "★ best 0.58 at step_500" in plot.text
        await go_to(place, pilot, "step_400")
        assert "▲" in plot.text and "400" in plot.text.splitlines()[-1]
        await pilot.press("asterisk")
        await go_to(place, pilot, "step_220")
        assert "held-out of rl-math, lower is better" in plot.text and "★ best 0.7 at step_230" in plot.text
        await settle(pilot, lambda: "0.7" in read_frame(place) and "lower is better" in read_frame(place))

    play(make_lab(), story)


def test_enter_opens_the_details_of_the_job_and_its_log_is_a_key_away() -> None:
    source = make_lab()
    source.details["105"] = {"id": 105, "name": "gsm8k-500", "state": "COMPLETED", "user": "ana", "cluster": "leo"}
    source.write("105", b"RESULT 0.58\n")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        await go_to(place, pilot, "step_500")
        await pilot.press("enter")
        await settle(
            pilot, lambda: "leo:105 gsm8k of step_500" in read_frame(place) and "COMPLETED" in place.pane.text()
        )
        assert not place.query_one(PlotPane).display, "on a narrow terminal the details take its room"
        await pilot.press("escape")
        assert place.query_one(PlotPane).display and not place.pane.display
        await pilot.press("o")
        await settle(pilot, lambda: isinstance(app.screen, LogScreen) and "RESULT 0.58" in read_frame(app.screen))

    play(source, story)


def test_keys_of_jobs_are_about_the_evaluations_job_and_on_a_watch_about_the_watched_one() -> None:
    source = make_lab()
    source.put(job(109, "gsm8k-900"))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        target = place.find_current()
        assert target is not None and target.label == "leo:1 fit"
        await go_to(place, pilot, "step_900")
        await pilot.press("c")
        await settle(
            pilot, lambda: isinstance(app.screen, OrderDialog) and "leo:109 gsm8k-900" in read_frame(app.screen)
        )
        assert "not shown" not in read_frame(app.screen)
        await answer(pilot, "y")
        await settle(pilot, lambda: [order[0] for order in source.orders] == ["cancel"])
        assert source.orders[0][1].refs == ("109",)

    play(source, story)


@pytest.mark.parametrize(
    ("checkpoint", "why"),
    [
        ("step_1100", "waits for its turn: 2 at once"),
        ("step_800", "Requested node configuration is not available"),
        ("step_1200", "not complete: its marker DONE is not there"),
    ],
)
def test_what_has_no_job_says_why(checkpoint: str, why: str) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        await go_to(place, pilot, checkpoint)
        await pilot.press("enter")
        await settle(pilot, lambda: f"gsm8k of {checkpoint} has no job: {why}" in read_notes(app))
        await pilot.press("o")
        assert len(app.screen_stack) == 1 and not place.pane.display

    play(make_lab(), story)


def test_a_checkpoint_is_evaluated_again_after_a_question_whose_default_is_no() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        await pilot.press("e")
        await settle(pilot, lambda: "choose a checkpoint" in read_notes(app))
        await go_to(place, pilot, "step_400")
        await pilot.press("e")
        await settle(pilot, lambda: "COMPLETED  leo:1 rl-math gsm8k of step_400" in read_frame(app.screen))
        await answer(pilot, "enter")
        assert source.orders == [] and len(app.screen_stack) == 1
        await pilot.press("e")
        await answer(pilot, "y")
        await settle(pilot, lambda: source.orders == [("run_evaluation", ("1", "step_400", "gsm8k"))])
        await settle(pilot, lambda: "leo:1 rl-math gsm8k of step_400: runs as job 99" in read_notes(app))
        assert [entry.order for entry in app.order_log] == ["Evaluate again"]

    play(source, story)


def test_several_are_evaluated_again_by_their_marks_each_checkpoint_once() -> None:
    source = make_lab()
    twice = [evaluation(1, 10, score=1.0), evaluation(2, 10, score=2.0, run=1), evaluation(3, 20, "RUNNING")]
    source.evaluations_of = {"1": [watch(1, "q", *twice)]}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot, 4)
        await pilot.press("ctrl+a", "e")
        await settle(pilot, lambda: "these 2 checkpoints? Evaluations of it" in read_frame(app.screen))
        source.refusal = Conflict("no room")
        await answer(pilot, "y")
        await settle(pilot, lambda: "2 jobs: no room" in read_notes(app) or read_notes(app).count("no room") == 1)
        assert len(place.table.marks) == 4, "marks stay where it failed"
        source.refusal = None
        await pilot.press("e")
        await answer(pilot, "y")
        await settle(pilot, lambda: len(source.orders) == 2)
        assert sorted(order[1] for order in source.orders) == [("1", "step_10", "q"), ("1", "step_20", "q")]

    play(source, story)


@pytest.mark.parametrize("options", [TopOptions(read_only=True)])
def test_read_only_evaluates_nothing(options: TopOptions) -> None:
    """As in a browser without --web-actions."""
    source = make_lab()

    async def run() -> None:
        app = TopApp(source, options)
        async with app.run_test(size=(100, 24)) as pilot:
            place = await open_evaluations(app, pilot)
            await go_to(place, pilot, "step_400")
            await pilot.press("e")
            assert len(app.screen_stack) == 1 and "read-only" in read_notes(app)

    asyncio.run(run())
    assert source.orders == []


def test_the_event_stream_brings_what_changes() -> None:
    """A change of a job that has to do with evaluations is asked about at once, another one is not."""
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        place.PERIOD = 1e9  # type: ignore[misc]
        place._next_ask = 1e18
        # The first change that the place hears of is one: it does not know yet which jobs there are.
        source.put(job(2, "first"))
        await settle(pilot, lambda: place._newest and not (place._news or place._under_way))
        asked = source.count("watches")
        source.put(job(2, "other"))
        await settle(pilot, lambda: "other" in [node.row.name for node in app.queue.jobs])
        assert source.count("watches") == asked
        source.evaluations_of["1"][0]["evaluations"][4]["best"] = False
        source.evaluations_of["1"][0]["evaluations"][8] = evaluation(9, 900, score=0.61, best=True)
        source.put(job(109, state="COMPLETED", ended_at=1.0))
        await settle(pilot, lambda: "step_900" in read_frame(place) and "best 0.61 at step_900" in read_frame(place))
        assert source.count("watches") == asked + 1

    play(source, story, size=(100, 40))


def test_what_changes_while_it_is_asked_about_is_asked_again() -> None:
    """Also where all counts are as before: another reason why one waits."""
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        place.PERIOD = 1e9  # type: ignore[misc]
        gate = source.gates["evals"] = threading.Event()
        source.put(job(109, name="other"))
        await settle(pilot, lambda: place.is_asking("results of evaluations"))
        source.put(job(110, state="PENDING"))
        await settle(pilot, lambda: place._news)
        documents = source.evaluations_of["1"]
        waiting = evaluation(10, 1000, "PENDING", reason="Licenses")
        told = documents[0]["evaluations"]
        source.evaluations_of["1"] = [{**documents[0], "evaluations": [*told[:9], waiting, told[10]]}, documents[1]]
        gate.set()
        await settle(pilot, lambda: "Licenses" in read_frame(place))

    play(source, story, size=(100, 40))


def test_nothing_is_asked_while_the_display_stands_still() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        await pilot.press("p")
        asked = source.count("watches")
        place._news, place._next_ask, place._asked_at = True, 0.0, 0.0
        place._tick()
        assert source.count("watches") == asked and not place._under_way

    play(source, story)


def test_evaluations_are_asked_for_where_they_are_in_sight() -> None:
    """Of a watch that is over and folded, nothing is asked but what the list tells, until somebody looks at it."""
    source = make_lab()
    old = watch(7, "q", evaluation(1, 10, score=1.0, best=True), closed=True, job_name="old")
    source.evaluations_of = {"1": source.evaluations_of["1"], "7": [old]}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot, 15)
        assert [about for name, about in source.asked if name == "evals"] == ["1"]
        assert list_names(place)[-1] == "old: q"
        await pilot.press("end")
        await settle(pilot, lambda: "best 1 at step_10" in place.query_one(PlotPane).text)
        await pilot.press("right")
        assert list_names(place)[-1] == "step_10"
        await pilot.press("left")
        assert list_names(place)[-1] == "old: q"
        await pilot.press("asterisk")
        assert len(list_names(place)) == 19
        await pilot.press("asterisk")
        assert len(list_names(place)) == 3

    play(source, story)


def test_a_filter_looks_for_checkpoints_in_all_watches() -> None:
    source = make_lab()
    old = watch(7, "q", evaluation(1, 10, score=1.0, best=True), closed=True, job_name="old")
    source.evaluations_of = {"1": source.evaluations_of["1"], "7": [old]}

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot, 15)
        await pilot.press("slash", *"checkpoint:^step_10$", "enter")
        await settle(pilot, lambda: list_names(place) == ["old: q", "step_10"])
        await pilot.press("escape")
        await settle(pilot, lambda: len(list_names(place)) == 15)

    play(source, story)


def test_a_job_of_the_queue_leads_to_its_evaluations_and_back() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 3)
        app.queue.table.move_to(LineKey(1, "job"))
        await pilot.press("v")
        await settle(pilot, lambda: isinstance(app.place, EvaluationsPlace))
        place = app.query_one(EvaluationsPlace)
        await settle(pilot, lambda: len(list_names(place)) == 17)
        await settle(pilot, lambda: "/job:^1$" in read_frame(place))
        await pilot.press("1")
        app.queue.table.move_to(LineKey(3, "job"))
        await pilot.press("v")
        await settle(pilot, lambda: "it has no evaluations; `span evals watch`" in read_frame(place))
        await pilot.press("escape")
        await settle(pilot, lambda: len(list_names(place)) == 17)

    play(make_lab(), story)


def test_the_plot_takes_the_whole_screen_and_gives_it_back() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        await go_to(place, pilot, "step_500")
        plot = place.query_one(PlotPane)
        height = plot.size.height
        for key in ("m", "escape"):
            await pilot.press("m")
            await settle(pilot, lambda: plot.size.height > height and not place.table.region.height)
            await pilot.press("down")
            await pilot.press(key)
            await settle(pilot, lambda: plot.size.height == height and app.focused is place.table)
        assert place.table.current is not None and place.table.current.key.checkpoint == "step_300"
        assert len(plot.text.splitlines()) == plot.content_size.height

    play(make_lab(), story)


def test_no_evaluations_say_what_to_do() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot, 0)
        await settle(
            pilot, lambda: "`on_checkpoint` in a job file, or `span evals watch`, makes some" in read_frame(place)
        )
        await pilot.press("e", "enter", "o", "m", "left", "asterisk")
        assert len(app.screen_stack) == 1 and place.query_one(PlotPane).text == ""

    play(Lab(), story)


def test_a_daemon_that_does_not_answer_leaves_what_was_known() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot)
        source.lost = Unreachable("the daemon is not running")
        await pilot.press("r")
        await settle(pilot, lambda: "old: the daemon is not running" in read_frame(place))
        assert len(list_names(place)) == 14 and "best 0.58" in place.query_one(PlotPane).text

    play(source, story)


def test_a_hostile_name_reaches_neither_dialog_nor_note_nor_plot() -> None:
    source = make_lab()
    spoiled: dict[str, Any] = {
        "checkpoint": HOSTILE,
        "reason": HOSTILE,
        "trouble": HOSTILE,
        "values": {HOSTILE: HOSTILE},
    }
    source.evaluations_of = {
        "1": [watch(1, HOSTILE, evaluation(1, 10, score=1.0, best=True, **spoiled), job_name=HOSTILE)]
    }

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_evaluations(app, pilot, 2)
        await pilot.press("down", "e")
        source.refusal = Conflict(HOSTILE)
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog))
        for widget in (app.screen, place):
            await settle(pilot, lambda widget=widget: "[bold]" in read_frame(widget))  # type: ignore[misc]
            assert not UNSAFE.search(read_frame(widget).replace("\n", ""))
        await answer(pilot, "y")
        await settle(pilot, lambda: "[bold]" in read_notes(app))
        assert not UNSAFE.search(read_notes(app).replace("\n", ""))
        assert not UNSAFE.search(place.query_one(PlotPane).text.replace("\n", ""))

    play(source, story)
