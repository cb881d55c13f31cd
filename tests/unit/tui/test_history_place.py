"""The place of the history: pages, filters, and what orders, logs and details are about."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from tests.unit.tui.fake_source import NOW, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import HOSTILE, Lab
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.listings.rows import JobRow
from overspan.bridge.model.errors import Unreachable
from overspan.tui.app import TopApp
from overspan.tui.history.columns import OlderLine
from overspan.tui.history.pages import PAGE
from overspan.tui.places.history import HistoryPlace
from overspan.tui.queue.tree import Line


def past(count: int, **more: Any) -> list[JobRow]:
    rows = (job(number, state="COMPLETED", ended_at=NOW - 10) for number in range(1, count + 1))
    return [row._replace(submitted_at=NOW - 10 * count + row.id, **more) for row in rows]


def make_source(rows: Sequence[JobRow]) -> Lab:
    source = Lab()
    source.past = list(rows)
    return source


def refs(place: HistoryPlace) -> list[str]:
    return [line.node.ref if isinstance(line, Line) else "older" for line in place.table.lines]


async def open_history(app: TopApp, pilot: Pilot[int], count: int) -> HistoryPlace:
    await pilot.press("5")
    place = app.query_one(HistoryPlace)
    await settle(pilot, lambda: len(place.table.lines) == count)
    return place


def test_the_newest_come_first_and_the_end_reads_older_ones() -> None:
    source = make_source(past(2 * PAGE + 50))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, PAGE + 1)
        assert refs(place)[:2] == ["450", "449"] and refs(place)[-1] == "older"
        await pilot.press("G")
        await settle(pilot, lambda: len(place.table.lines) > PAGE + 1)
        # The cursor is on the first of those that came, where it was on the screen.
        assert isinstance(place.table.current, Line) and place.table.current.node.ref == "250"
        while not place._pages.complete:
            await pilot.press("G")
            await pilot.pause(0.02)
        assert refs(place) == [str(number) for number in range(450, 0, -1)]
        await settle(pilot, lambda: "that is all of it" in read_frame(place))

    play(source, story)


def test_words_are_looked_at_at_once_and_asked_at_enter() -> None:
    rows = [row._replace(user="bo" if row.id % 2 else "ana") for row in past(300)]
    source = make_source(rows)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, PAGE + 1)
        await pilot.press("slash", *"user:bo")
        await settle(pilot, lambda: len(place.table.lines) == PAGE // 2 + 1)
        await settle(pilot, lambda: f"{PAGE // 2} of {PAGE} jobs" in read_frame(place))
        await pilot.press("enter")
        await settle(pilot, lambda: len(place.table.lines) == 150)
        assert {about.users for _, about in source.asked[-2:]} == {("bo",)}
        await pilot.press("escape")
        await settle(pilot, lambda: len(place.table.lines) == PAGE + 1)
        assert source.asked[-1][1].users == ()

    play(source, story)


def test_a_slow_answer_to_a_former_filter_changes_nothing() -> None:
    rows = [row._replace(user="bo" if row.id % 2 else "ana") for row in past(10)]
    source = make_source(rows)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, 10)
        gate = source.gates["history"] = threading.Event()
        place.set_filter("user:bo")
        await settle(pilot, lambda: source.count("history") == 2)
        place.set_filter("user:ana")
        await settle(pilot, lambda: "asking the daemon" in read_frame(place))
        gate.set()
        await settle(pilot, lambda: refs(place) == ["10", "8", "6", "4", "2"])
        assert [about.users for _, about in source.asked][-2:] == [("bo",), ("ana",)]

    play(source, story)


def test_an_older_page_of_a_former_filter_is_dropped() -> None:
    rows = [row._replace(user="bo" if row.id == 300 else "ana") for row in past(2 * PAGE)]
    source = make_source(rows)

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, PAGE + 1)
        gate = source.gates["history"] = threading.Event()
        await pilot.press("G")
        await settle(pilot, lambda: source.count("history") == 2)
        place.set_filter("user:bo")
        await settle(pilot, lambda: source.count("history") == 3)
        gate.set()
        await settle(pilot, lambda: "that is all of it" in read_frame(place))
        await pilot.pause(0.05)
        await settle(pilot, lambda: refs(place) == ["300"] and "History: 1 of 1 job " in read_frame(place))

    play(source, story)


def test_a_failed_page_keeps_what_was_read_and_is_asked_again() -> None:
    source = make_source(past(2 * PAGE))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, PAGE + 1)
        source.lose(Unreachable("the daemon is not running"))
        await pilot.press("G")
        await settle(pilot, lambda: "the daemon is not running" in read_frame(place))
        assert len(place.table.lines) == PAGE + 1 and isinstance(place.table.current, OlderLine)
        source.lost = None
        await pilot.press("enter")
        await settle(pilot, lambda: len(place.table.lines) > PAGE + 1)

    play(source, story)


def test_an_array_that_fills_pages_says_that_it_is_not_read_in_full() -> None:
    rows = [
        job(2 + index, state="COMPLETED", array_id=2, array_index=index, ended_at=NOW - 5)._replace(
            submitted_at=NOW - 50
        )
        for index in range(2 * PAGE)
    ]
    source = make_source([*past(1), *rows, job(2 * PAGE + 5)._replace(submitted_at=NOW - 1)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, 3)
        await settle(pilot, lambda: f"fit: {PAGE - 1} CD + more" in read_frame(place))
        # One key reads on until there is a line more, however many pages that takes.
        await pilot.press("G")
        await settle(pilot, lambda: refs(place) == [str(2 * PAGE + 5), "2", "1"])
        assert f"fit: {2 * PAGE} CD" in read_frame(place) and "more" not in read_frame(place)

    play(source, story)


def test_groups_and_arrays_are_folded_and_orders_are_about_the_whole() -> None:
    group = [
        job(7, f"task-{offset}", "COMPLETED", task_offset=offset, group="rlhf", ended_at=NOW - 5) for offset in range(3)
    ]
    elements = [
        job(9 + index, state="FAILED" if index else "COMPLETED", array_id=8, array_index=index, ended_at=NOW - 5)
        for index in range(2)
    ]
    source = make_source([*group, *elements])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, 2)
        assert refs(place) == ["8", "7"]
        assert [target.ref for target in place.list_targets()] == ["8"]
        await pilot.press("right")
        assert refs(place) == ["8", "8_0", "8_1", "7"]
        await pilot.press("down", "space", "space")
        assert [target.ref for target in place.list_targets()] == ["8_0", "8_1"]
        await settle(pilot, lambda: "1 F, 1 CD" in read_frame(place))
        await pilot.press("up", "left")
        assert refs(place) == ["8", "7"]

    play(source, story, size=(140, 24))


def test_details_open_on_enter_and_close_on_escape() -> None:
    source = make_source(past(3))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, 3)
        await pilot.press("enter")
        assert place.pane.display
        await pilot.press("escape")
        assert not place.pane.display and app.place is place

    play(source, story)


def test_new_jobs_appear_above_and_the_cursor_stays_on_its_job() -> None:
    source = make_source(past(5))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, 5)
        await pilot.press("down")
        source.past = [*source.past, job(6)._replace(submitted_at=NOW)]
        await pilot.press("r")
        await settle(pilot, lambda: refs(place)[0] == "6")
        assert isinstance(place.table.current, Line) and place.table.current.node.ref == "4"

    play(source, story)


def test_an_empty_history_says_what_to_do() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("5")
        place = app.query_one(HistoryPlace)
        await settle(pilot, lambda: "`span submit` makes one" in read_frame(place))
        await pilot.press("slash", *"since:wrong")
        await settle(pilot, lambda: "'since:wrong': " in read_frame(place))

    play(make_source([]), story)


def test_hostile_names_are_clean() -> None:
    source = make_source(past(1, name=HOSTILE, user=HOSTILE, partition=HOSTILE, reason=HOSTILE))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_history(app, pilot, 1)
        await settle(pilot, lambda: "[bold]" in read_frame(place))
        assert not UNSAFE.search(read_frame(place).replace("\n", ""))

    play(source, story, size=(140, 24))
