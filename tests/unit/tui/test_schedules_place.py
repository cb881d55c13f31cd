"""The place of schedules: orders with and without a question, and the jobs of one."""

from __future__ import annotations

import asyncio

from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import HOSTILE, Lab, make_lab, schedule
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.bridge.model.errors import Conflict
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.places.history import HistoryPlace
from overspan.tui.places.schedules import SchedulesPlace


async def open_schedules(app: TopApp, pilot: Pilot[int], count: int = 2) -> SchedulesPlace:
    await pilot.press("7")
    place = app.query_one(SchedulesPlace)
    await settle(pilot, lambda: len(place.table.lines) == count)
    return place


def read_notes(app: TopApp) -> str:
    return "\n".join(note.message for note in app._notifications)


def test_a_run_is_asked_for_and_no_is_the_default() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_schedules(app, pilot)
        await pilot.press("n")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and "c3 nightly" in read_frame(app.screen))
        await pilot.press("enter")
        assert source.orders == [] and not isinstance(app.screen, OrderDialog)
        await pilot.press("n", "escape")
        assert source.orders == []
        await pilot.press("n", "tab", "enter")
        await settle(pilot, lambda: source.orders == [("run_schedule", 3)])
        await settle(pilot, lambda: "c3 nightly runs as job 99" in read_notes(app))

    play(source, story)


def test_the_dialog_keeps_its_target_when_the_list_changes() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot)
        await pilot.press("n")
        source.schedule_list = [schedule(9, "other")]
        place.inquire("schedules", lambda source: source.schedules(), place._take)
        await settle(pilot, lambda: len(place.table.lines) == 1)
        await pilot.press("tab", "enter")
        await settle(pilot, lambda: source.orders == [("run_schedule", 3)])

    play(source, story)


def test_a_pause_asks_only_where_it_gives_up_runs() -> None:
    source = make_lab()
    source.schedule_list.append(schedule(5, "hourly", next_due=2e9))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot, 3)
        await pilot.press("H")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and "1 owed" in read_frame(app.screen))
        await pilot.press("escape", "down", "H")
        await settle(pilot, lambda: source.orders == [("pause_schedule", (5,))])
        await pilot.press("down", "U")
        await settle(pilot, lambda: source.orders[1:] == [("resume_schedule", (4,))])
        await pilot.press("H")
        await settle(pilot, lambda: "c4 weekly is paused already" in read_notes(app))
        assert len(source.orders) == 2 and place.table.current is not None

    play(source, story)


def test_a_schedule_is_deleted_after_a_question_and_keeps_its_mark_where_that_fails() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot)
        await pilot.press("D")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and "c3 nightly" in read_frame(app.screen))
        await pilot.press("enter")
        assert source.orders == []
        source.refusal = Conflict("c3 is of a crontab", remedy="edit that: span cron -e")
        await pilot.press("space", "home", "D", "tab", "enter")
        await settle(pilot, lambda: "c3 nightly: c3 is of a crontab; edit that" in read_notes(app))
        assert place.table.marks == {3}
        source.refusal = None
        await pilot.press("delete", "tab", "enter")
        await settle(pilot, lambda: source.orders == [("delete_schedule", (3,))])
        await settle(pilot, lambda: "c3 nightly is deleted" in read_notes(app))
        assert place.table.marks == set()

    play(source, story)


def test_nothing_is_asked_while_the_display_stands_still() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot)
        asked: list[str] = []
        place.ask = lambda: asked.append("ask")  # type: ignore[method-assign]
        await pilot.press("p")
        place._next_ask = 0.0
        place._tick()
        assert asked == []
        # Who wants the newest gets it.
        await pilot.press("r")
        assert asked == ["ask"]
        await pilot.press("p")
        place._next_ask = 0.0
        place._tick()
        assert asked == ["ask", "ask"]

    play(source, story)


def test_orders_take_the_marks() -> None:
    source = make_lab()
    source.schedule_list = [schedule(number, f"s{number}") for number in (1, 2, 3)]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot, 3)
        await pilot.press("space", "space")
        source.schedule_list = source.schedule_list[1:]
        await pilot.press("r")
        await settle(pilot, lambda: len(place.table.lines) == 2)
        assert place.table.marks == {2}
        await pilot.press("H")
        await settle(pilot, lambda: source.orders == [("pause_schedule", (2,))])

    play(source, story)


def test_a_refusal_is_told() -> None:
    source = make_lab()
    source.refusal = Conflict("a former run is not over")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_schedules(app, pilot)
        await pilot.press("n", "tab", "enter")
        await settle(pilot, lambda: "c3 nightly: a former run is not over" in read_notes(app))

    play(source, story)


def test_a_hostile_name_reaches_neither_dialog_nor_note() -> None:
    source = make_lab()
    source.schedule_list = [schedule(3, HOSTILE)]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot, 1)
        source.refusal = Conflict(HOSTILE)
        await pilot.press("n")
        for widget in (app.screen, place):
            await settle(pilot, lambda widget=widget: "[bold]" in read_frame(widget))  # type: ignore[misc]
            assert not UNSAFE.search(read_frame(widget).replace("\n", ""))
        await pilot.press("y")
        await settle(pilot, lambda: bool(app._notifications))
        assert not UNSAFE.search(read_notes(app)) and "[bold]" in read_notes(app)

    play(source, story)


def test_read_only_gives_no_orders() -> None:
    source = make_lab()

    async def run() -> None:
        app = TopApp(source, TopOptions(read_only=True))
        async with app.run_test() as pilot:
            await open_schedules(app, pilot)
            await pilot.press("n", "H", "U")
            assert not isinstance(app.screen, OrderDialog)
            assert "read-only" in read_notes(app)

    asyncio.run(run())
    assert source.orders == []


def test_enter_shows_its_jobs_in_the_history() -> None:
    source = make_lab()
    source.past = [*source.past, source.past[0]._replace(id=812, name="nightly")]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await open_schedules(app, pilot)
        await pilot.press("enter")
        place = app.query_one(HistoryPlace)
        assert app.place is place
        await settle(pilot, lambda: [line.node.ref for line in place.table.lines] == ["812"])
        await settle(pilot, lambda: "nightly" in read_frame(place).splitlines()[0])

    play(source, story)


def test_no_schedules_say_what_to_do() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_schedules(app, pilot, 0)
        await settle(pilot, lambda: "`span cron -e` edits a crontab" in read_frame(place))

    play(Lab(), story)
