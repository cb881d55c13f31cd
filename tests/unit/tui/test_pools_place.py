"""The place of pools: lines of workers, the queue over time, the way to the jobs, and a drain."""

from __future__ import annotations

from tests.unit.tui.fake_source import NOW
from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import make_lab, pool, worker
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.model.errors import Conflict
from overspan.tui.app import TopApp
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.filter_language import Filter, fields_of_texts, read_words
from overspan.tui.places.pools import PoolsPlace
from overspan.tui.pools.lines import FIELDS, MOST_SAMPLES, PoolLineKey, describe, make_lines, note_lengths
from overspan.tui.widgets.bars import draw_history

POOLS = [pool("gpu", worker("gpu", 41, 57), worker("gpu", 42), worker("gpu", 43, state="SILENT")), pool("bare")]


def list_names(text: str = "", sort: str = "name", reverse: bool = False) -> list[str]:
    chosen = read_words(text, fields_of_texts(FIELDS)) if text else Filter()
    return [line.label for line in make_lines(POOLS, chosen, sort, reverse)]


def test_workers_are_below_their_pool_in_the_order_that_is_asked_for() -> None:
    assert list_names() == ["gpu", "gpu-41", "gpu-42", "gpu-43", "bare"]
    assert list_names(reverse=True) == ["gpu", "gpu-43", "gpu-42", "gpu-41", "bare"]
    assert list_names(sort="jobs") == ["gpu", "gpu-41", "gpu-42", "gpu-43", "bare"]
    assert [line.last for line in make_lines(POOLS, Filter(), "state")] == [False, False, False, True, False]


def test_a_filter_shows_a_worker_below_its_pool() -> None:
    assert list_names("state:silent") == ["gpu", "gpu-43"]
    assert list_names("pool:bare") == ["bare"]
    assert list_names("worker:gpu-42") == ["gpu", "gpu-42"]


def test_the_length_of_a_queue_is_kept_for_a_while_and_forgotten_with_its_pool() -> None:
    lengths = note_lengths({}, [pool("a", waiting=3), pool("b", waiting=1)])
    lengths = note_lengths(lengths, [pool("a", waiting=5)])
    assert lengths == {"a": [3, 5]}
    for _ in range(MOST_SAMPLES + 5):
        lengths = note_lengths(lengths, [pool("a", waiting=9)])
    assert lengths == {"a": [9] * MOST_SAMPLES}


def test_numbers_over_time_are_drawn_by_the_largest_of_each_part() -> None:
    assert draw_history([], 8) == draw_history([1], 0) == ""
    assert draw_history([0, 1, 50, 100], 8) == "▁▂▅█"
    assert draw_history([0, 0, 9, 0, 0, 0, 0, 0], 4) == "▁█▁▁"
    assert draw_history([0, 1, 2, 4], 4, ascii_only=True) == "_.=#" or draw_history([0, 1, 2, 4], 4, True).isascii()
    assert draw_history([0, 0], 2) == "▁▁"


def test_a_line_says_in_words_what_its_columns_cut() -> None:
    lines = make_lines([pool("gpu", worker("gpu", 41, 57, 58, ends_at=NOW + 7300))], Filter(), "name")
    assert describe(lines[0], NOW) == "gpu of ana: 1 of 1 workers ready (1-4); 7 jobs wait, 2 run"
    assert describe(lines[1], NOW) == "gpu-41, job 41 on leo: ready for 1 h; holds 57 58; ends in 2 h 1 m"
    (_, line) = make_lines([pool("gpu", worker("gpu", 41, **{"class": "node"}))], Filter(), "name")
    assert "; class node; holds no job" in describe(line, NOW)


async def open_pools(app: TopApp, pilot: Pilot[int], count: int) -> PoolsPlace:
    await pilot.press("3")
    place = app.query_one(PoolsPlace)
    await settle(pilot, lambda: len(place.table.lines) == count and not place.is_asking("pools"))
    return place


def read_notes(app: TopApp) -> str:
    return "\n".join(note.message for note in app._notifications)


def test_a_worker_is_drained_after_a_question_and_a_refusal_is_told() -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_pools(app, pilot, 5)
        place.table.move_to(PoolLineKey("gpu", 42))
        await pilot.press("D")
        await settle(pilot, lambda: isinstance(app.screen, OrderDialog) and "gpu-42" in read_frame(app.screen))
        await pilot.press("enter")
        assert source.orders == []
        await pilot.press("D", "tab", "enter")
        await settle(pilot, lambda: source.orders == [("drain_pool", ("gpu", (42,)))])
        await settle(pilot, lambda: "gpu-42 drains" in read_notes(app))
        source.refusal = Conflict("the pool was changed", remedy="try again")
        place.table.move_to(PoolLineKey("gpu"))
        await pilot.press("D")
        await settle(pilot, lambda: "all workers of gpu" in read_frame(app.screen))
        await pilot.press("tab", "enter")
        await settle(pilot, lambda: "gpu: the pool was changed" in read_notes(app))

    play(source, story)


def test_enter_shows_the_jobs_of_a_worker_in_the_queue() -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_pools(app, pilot, 5)
        place.table.move_to(PoolLineKey("gpu", 41))
        await pilot.press("enter")
        await settle(pilot, lambda: app.place is app.queue)
        assert "gpu-41" in app.queue.filter_source and "cluster:" in app.queue.filter_source

    play(make_lab(), story)


def test_no_pools_say_what_to_do() -> None:
    source = make_lab()
    source.pool_list = []

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        place = await open_pools(app, pilot, 0)
        await settle(pilot, lambda: "span pool apply -p NAME FILE" in read_frame(place))

    play(source, story)
