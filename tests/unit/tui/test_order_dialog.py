"""The dialog of an order: what it names, what its keys do, and what becomes of what changes below it."""

from __future__ import annotations

from math import inf

import pytest
from tests.unit.tui.fake_source import NOW, FakeSource, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.order_stories import answer, begin, make_targets, read_notes
from tests.unit.tui.queue_lab import make_array, make_group
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import Input

from overspan.bridge.client.messages import CancelOrder
from overspan.tui.actions.orders import find_order
from overspan.tui.app import TopApp
from overspan.tui.dialogs.order_dialog import OrderDialog, list_lines, word_left_out, word_title


def test_every_target_is_named_with_its_cluster_and_state() -> None:
    targets = make_targets(job(7), *make_group(42))
    assert list_lines(targets) == ["RUNNING    leo:7 fit", "3 R, 2 PD  slurm-a:42 rl-math"]
    [array] = list_lines(make_targets(*make_array(44)))
    assert array == "3 R, 996 PD, 1 F  k8s:44 sweep-lr"
    many = dict.fromkeys(("RUNNING", "PENDING", "FAILED", "COMPLETED", "CANCELLED"), 100)
    [line] = list_lines([make_targets(job(7))[0]._replace(tally=many)])
    assert line == "100 R, 100 PD, 100 F, 100 CD, 1…  leo:7 fit"
    assert word_title(find_order("cancel"), 1, 0) == "Cancel this job?"
    assert word_title(find_order("cancel"), 3, 2) == "Cancel these 3 jobs?  2 of them are marked but not shown now"
    assert word_left_out(["a", "b", "c", "d", "e"])[-1] == "left out: 2 more"


def test_the_default_is_no_and_escape_closes() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        for key in ("enter", "escape", "n"):
            await pilot.press("c")
            await answer(pilot, key)
            assert not isinstance(app.screen, OrderDialog)
        await pilot.press("x")
        await answer(pilot, "y")
        assert isinstance(app.screen, OrderDialog)
        await pilot.press("enter")
        await settle(pilot, lambda: not isinstance(app.screen, OrderDialog))
        assert source.orders == [] and len(app.order_log) == 0

    play(source, story)


def test_a_yes_before_the_dialog_was_seen_does_nothing() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("c")
        dialog = app.screen
        assert isinstance(dialog, OrderDialog)
        await settle(pilot, lambda: dialog._seen)
        dialog._seen_at = inf
        await pilot.press("y", "tab", "enter")
        assert len(app.screen_stack) == 2 and source.orders == []
        dialog._note_seen()
        await pilot.press("y")
        await settle(pilot, lambda: len(source.orders) == 1)

    play(source, story)


def test_nothing_is_seen_before_the_first_painting() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        seen = []
        app.queue.action_order("cancel")
        dialog = app.screen_stack[-1]
        assert isinstance(dialog, OrderDialog)
        seen.append(dialog._seen)
        await settle(pilot, lambda: dialog._seen)
        assert seen == [False]

    play(FakeSource([job(7)]), story)


def test_many_answers_are_one() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("c")
        await answer(pilot, "y", "y", "enter", "n")
        await settle(pilot, lambda: len(app.order_log) == 1)
        assert len(source.orders) == 1

    play(source, story)


def test_letters_are_text_while_a_value_is_typed() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("t")
        await answer(pilot, "y", "n", "q", "k", "enter")
        assert isinstance(app.screen, OrderDialog)
        assert app.screen.query_one(Input).value == "ynqk"
        await settle(pilot, lambda: "'ynqk' is not a time limit; write minutes" in read_frame(app.screen))
        await pilot.press("escape")
        assert not isinstance(app.screen, OrderDialog) and source.orders == []

    play(source, story)


def test_a_job_that_ended_while_the_dialog_was_open_is_left_out_and_told() -> None:
    source = FakeSource([job(1), job(2), job(3)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a", "c")
        source.put(job(2, state="COMPLETED", ended_at=NOW))
        source.drop(3)
        await settle(pilot, lambda: len(app.queue.jobs) == 2 and app.queue.jobs.count_states()["COMPLETED"] == 1)
        await settle(pilot, lambda: "leo:3 fit" in read_frame(app.screen))
        await answer(pilot, "y")
        await settle(pilot, lambda: len(app.order_log) == 3)
        assert source.orders == [("cancel", CancelOrder(refs=("1",)))]
        assert "leo:2 fit is COMPLETED now" in read_notes(app)
        assert "leo:3 fit is not in the queue any more" in read_notes(app)

    play(source, story)


def test_the_targets_stay_while_the_cursor_moves_below() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("c")
        source.put(job(8))
        await settle(pilot, lambda: len(app.queue.jobs) == 2)
        app.queue.table.action_first()
        await answer(pilot, "y")
        await settle(pilot, lambda: source.orders == [("cancel", CancelOrder(refs=("7",)))])

    play(source, story)


def test_marks_that_the_filter_hides_are_counted_and_named() -> None:
    source = FakeSource([job(1, "fit"), job(2, "eval"), job(3, "eval")])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a", "slash", *"name:fit", "enter")
        await settle(pilot, lambda: len(app.queue.table.lines) == 1)
        await pilot.press("c")
        await settle(pilot, lambda: "2 of them are marked but not shown now" in read_frame(app.screen))
        await settle(pilot, lambda: "leo:2 eval" in read_frame(app.screen))
        await answer(pilot, "n")
        assert source.orders == []

    play(source, story)


@pytest.mark.parametrize(("key", "page"), [("c", "pagedown"), ("x", "ctrl+f"), ("t", "pagedown")])
def test_a_long_list_scrolls_in_80_by_24_and_the_buttons_stay(key: str, page: str) -> None:
    source = FakeSource([job(number) for number in range(1, 60)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("ctrl+a", key)
        await settle(pilot, lambda: "these 59 jobs" in read_frame(app.screen))
        buttons = app.screen.query("Button")
        assert all(button.region.height == 1 and button.region.bottom <= 24 for button in buttons)
        assert isinstance(app.screen, OrderDialog)
        last = app.screen.question.lines[-1].split(maxsplit=1)[1]
        assert last not in read_frame(app.screen)
        await answer(pilot, *[page] * 15)
        await settle(pilot, lambda: last in read_frame(app.screen))
        await settle(pilot, lambda: "No" in read_frame(app.screen))

    play(source, story, (80, 24))
