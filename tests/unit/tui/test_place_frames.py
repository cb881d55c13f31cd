"""The places as they look, on a small terminal and on a wide one."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from tests.unit.tui.fake_source import NOW
from tests.unit.tui.frames import check_frame, read_frame
from tests.unit.tui.labs import make_lab
from tests.unit.tui.stories import settle

from overspan.tui.app import TopApp, TopOptions
from overspan.tui.places.list_place import ListPlace

PLACES = {
    "evaluations": ("2", 14),
    "pools": ("3", 5),
    "nodes": ("4", 8),
    "history": ("5", 6),
    "clusters": ("6", 3),
    "schedules": ("7", 2),
}


@pytest.fixture
def still_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Time stands still, in UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    monkeypatch.setattr(ListPlace, "now", lambda place: NOW)
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("size", [(80, 24), (140, 40)], ids=["80x24", "140x40"])
@pytest.mark.parametrize("name", list(PLACES))
@pytest.mark.usefixtures("still_clock")
def test_a_place_looks_like_this(name: str, size: tuple[int, int]) -> None:
    async def run() -> None:
        key, count = PLACES[name]
        app = TopApp(make_lab(), TopOptions())
        async with app.run_test(size=size) as pilot:
            await pilot.press(key)
            place = app.place
            assert isinstance(place, ListPlace)
            await settle(pilot, lambda: len(place.table.lines) == count and not place._under_way)
            if place.DESCRIBES:
                await settle(pilot, lambda: place.query_one(".about").size.height == place._about_lines)
                await pilot.pause()
            check_frame(f"{name}_{size[0]}x{size[1]}", read_frame(place))

    asyncio.run(run())


@pytest.mark.usefixtures("still_clock")
def test_bars_and_trees_are_ascii_where_that_is_wanted() -> None:
    async def run() -> None:
        app = TopApp(make_lab(), TopOptions(ascii=True))
        async with app.run_test(size=(80, 24)) as pilot:
            await pilot.press("4")
            place = app.place
            assert isinstance(place, ListPlace)
            await settle(pilot, lambda: len(place.table.lines) == 8 and not place._under_way)
            await settle(
                pilot, lambda: " |- n1            mix    ##.. 40/64  ##.. 98G/256G  ###. 6/8" in read_frame(place)
            )
            cells = [column.cell(line, NOW).text for line in place.table.lines for column in place.make_columns(80)]
            assert all(text.isascii() for text in cells)

    asyncio.run(run())
