"""Watched jobs: which can be, what their lines show, and how the user is told of their ends."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.labs import Lab
from tests.unit.tui.order_stories import begin, make_targets, make_tree, read_notes
from tests.unit.tui.queue_frames import read_screen
from tests.unit.tui.queue_lab import make_array, make_group
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.listings.rows import JobRow
from overspan.tui.actions.watching import WatchList
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.head import Head

ENDED: dict[str, Any] = {"state": "FAILED", "ended_at": NOW + 60, "reason": "NonZeroExitCode"}


def count_bells(app: TopApp, monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Each bell that rings, as it rings."""
    rung: list[bool] = []
    monkeypatch.setattr(app, "bell", lambda: rung.append(True))
    return rung


def test_what_is_watched_is_forgotten_at_its_end_alone() -> None:
    watched = WatchList()
    targets = make_targets(job(1), job(2))
    assert watched.turn(targets[:1]) and watched.turn(targets)
    assert not watched.turn(targets) and not watched
    watched.turn(targets)
    tree = make_tree(job(1, **ENDED), job(3))
    [end] = watched.take_ended(tree)
    assert (end.target.ref, end.text, end.failed) == ("1", "FAILED (NonZeroExitCode) after 2:00", True)
    assert [target.ref for target in watched.list_missing(tree)] == ["2"]
    assert watched.take_ended(tree) == []


def test_a_group_and_an_array_end_with_their_last_member() -> None:
    watched = WatchList()
    group, array = make_group(42), make_array(60)
    watched.turn(make_targets(*group, *array))
    over = [row._replace(state="COMPLETED", ended_at=NOW) for row in group]
    half = [row._replace(state="COMPLETED", ended_at=NOW) for row in array[:3]]
    [end] = watched.take_ended(make_tree(*over, *half, *array[3:]))
    assert (end.target.ref, end.text, end.failed) == ("42", "COMPLETED", False)
    [end] = watched.take_ended(make_tree(*half, array[3]))
    assert (end.target.ref, end.text, end.failed) == ("60", "3 COMPLETED, 1 FAILED", True)


def test_the_line_has_a_sign_until_the_end_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Lab([job(7), job(8)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        rung = count_bells(app, monkeypatch)
        await begin(app, pilot)
        app.queue.table.move_to(app.queue.table.lines[0].key)
        ref = app.queue.table.lines[0].node.ref
        await pilot.press("i")
        await settle(pilot, lambda: f"{ref} ◉" in read_screen(app) and "1 watched" in read_screen(app))
        source.put(job(int(ref), name="other name"))
        await settle(pilot, lambda: "other name" in read_screen(app))
        assert f"{ref} ◉" in read_screen(app) and not rung
        source.put(job(int(ref), **ENDED))
        await settle(pilot, lambda: rung == [True])
        await settle(pilot, lambda: "◉" not in read_screen(app) and "watched" not in app.query_one(Head).text)
        assert f"ended leo:{ref} fit: FAILED (NonZeroExitCode) after 2:00" in read_notes(app)
        [entry] = app.order_log
        assert entry.failed and entry.order == "Watch" and entry.target == f"leo:{ref} fit"
        # Whoever has read the note takes it away.
        await pilot.press("escape")
        await settle(pilot, lambda: not read_notes(app))

    play(source, story)


def test_marked_jobs_are_watched_and_what_has_ended_is_not() -> None:
    source = Lab([job(1), job(2, state="PENDING"), job(3, state="COMPLETED", ended_at=NOW), *make_array(60)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("asterisk", "ctrl+a", "i")
        await settle(pilot, lambda: len(app.watching.watched) == 6)
        assert "leo:3 fit has ended: COMPLETED" in read_notes(app)
        assert "k8s:60_[4-999%4] sweep-lr: watch the array, or an element that has started" in read_notes(app)
        await pilot.press("i")
        await settle(pilot, lambda: not app.watching.watched)
        assert "6 jobs: watched no more" in read_notes(app)

    play(source, story)


def test_many_ends_at_once_are_one_note(monkeypatch: pytest.MonkeyPatch) -> None:
    source = Lab([job(number) for number in range(1, 41)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        rung = count_bells(app, monkeypatch)
        await begin(app, pilot)
        await pilot.press("ctrl+a", "i")
        await settle(pilot, lambda: len(app.watching.watched) == 40)
        source.put(*(job(number, **ENDED) for number in range(1, 41)))
        await settle(pilot, lambda: not app.watching.watched)
        assert "ended 40 watched jobs, 40 failed; the order log names them" in read_notes(app)
        assert rung == [True] and len(app.order_log) == 40 and "leo:7 fit: FAILED" not in read_notes(app)

    play(source, story)


@pytest.mark.parametrize(
    ("past", "told"),
    [
        ([job(7, **ENDED)], "leo:7 fit: FAILED (NonZeroExitCode) after 2:00"),
        ([], "leo:7 fit: nothing is known of it any more"),
        ([job(7)], ""),
    ],
)
def test_what_the_queue_does_not_tell_is_asked_for(past: Sequence[JobRow], told: str) -> None:
    source = Lab([job(7), job(8)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        app.watching.turn(make_targets(job(7)))
        app.watching.ask()
        assert not source.count("history")
        source.drop(7)
        await settle(pilot, lambda: len(app.queue.table.lines) == 1)
        source.past = list(past)
        app.watching.ask()
        await settle(pilot, lambda: source.count("history") == 1)
        await settle(pilot, lambda: told in read_notes(app))
        await settle(pilot, lambda: bool(app.watching.watched) is not bool(told))

    play(source, story)


def test_a_display_that_stands_still_tells_of_ends() -> None:
    source = Lab([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press("i", "p")
        source.past = [job(7, **ENDED)]
        app.watching.ask()
        await settle(pilot, lambda: "leo:7 fit: FAILED" in read_notes(app))

    play(source, story)


def test_ascii_has_a_sign_of_its_own() -> None:
    async def story() -> None:
        app = TopApp(Lab([job(7)]), TopOptions(ascii=True))
        async with app.run_test(size=(100, 24)) as pilot:
            await begin(app, pilot)
            await pilot.press("i")
            await settle(pilot, lambda: "7 * " in read_screen(app))

    asyncio.run(story())
