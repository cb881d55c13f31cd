"""The queue's screen, as golden frames: `OVERSPAN_WRITE_GOLDEN=1` writes them, `git diff` shows what is another."""

from __future__ import annotations

import pytest
from tests.unit.tui.fake_source import NOW, FakeSource
from tests.unit.tui.queue_frames import check_frame, read_screen, still
from tests.unit.tui.queue_lab import STALE, make_lab
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.records import JobFilter
from overspan.bridge.model.errors import Unreachable
from overspan.tui.app import TopApp, TopOptions
from overspan.tui.queue.snapshot import join_line, write_snapshot

__all__ = ("still",)
SIZES = ((80, 24), (140, 40))
sizes = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


def record(name: str, source: FakeSource, size: tuple[int, int], keys: tuple[str, ...] = (), lines: int = 1) -> None:
    """Play keys and compare the screen with the golden frame of this name."""

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) >= lines)
        await pilot.pause()
        for key in keys:
            await pilot.press(key)
            await pilot.pause()
        await pilot.pause()
        check_frame(f"{name}_{size[0]}x{size[1]}.txt", read_screen(app))

    play(source, story, size)


def make_source() -> FakeSource:
    source = FakeSource(make_lab())
    source.stale = STALE
    return source


@sizes
def test_a_lab(still: None, size: tuple[int, int]) -> None:
    record("lab", make_source(), size)


@sizes
def test_unfolded(still: None, size: tuple[int, int]) -> None:
    record("unfolded", make_source(), size, ("asterisk", "e"))


@sizes
def test_a_filter(still: None, size: tuple[int, int]) -> None:
    record("filter", make_source(), size, ("slash", *"state:pd", "enter", "asterisk", "space", "space", "S"))


@sizes
def test_a_filter_that_cannot_be_read(still: None, size: tuple[int, int]) -> None:
    record("wrong_filter", make_source(), size, ("slash", *"usr:ana ("))


@sizes
def test_no_match(still: None, size: tuple[int, int]) -> None:
    record("no_match", make_source(), size, ("slash", *"nothing", "enter"))


@sizes
def test_an_empty_queue(still: None, size: tuple[int, int]) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: "no job waits" in app.queue.table.empty)
        await pilot.pause()
        check_frame(f"empty_{size[0]}x{size[1]}.txt", read_screen(app))

    play(FakeSource(), story, size)


@sizes
def test_a_daemon_that_never_answered(still: None, size: tuple[int, int]) -> None:
    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: app.lost is not None)
        await pilot.pause()
        check_frame(f"silent_{size[0]}x{size[1]}.txt", read_screen(app))

    source = FakeSource()
    source.lose(Unreachable("the daemon is not running"))
    play(source, story, size)


@sizes
def test_a_lost_daemon_leaves_what_was_known(still: None, size: tuple[int, int]) -> None:
    source = make_source()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) > 1)
        source.lose(Unreachable("the daemon is not running"))
        await settle(pilot, lambda: app.lost is not None)
        await pilot.pause()
        check_frame(f"lost_{size[0]}x{size[1]}.txt", read_screen(app))

    play(source, story, size)


@sizes
def test_a_sorted_queue_with_other_columns(still: None, size: tuple[int, int]) -> None:
    record("sorted", make_source(), size, ("s", "down", "down", "enter", "S", "C", "G", "space", "enter"))


@sizes
def test_the_dialogs(still: None, size: tuple[int, int]) -> None:
    record("columns", make_source(), size, ("C", "down", "space", "J"))
    record("order", make_source(), size, ("s", "down"))


@pytest.mark.parametrize("width", [0, 80, 140])
def test_once_is_what_the_screen_shows(still: None, width: int) -> None:
    options = TopOptions(filter="" if width else "state:pd", unfolded=not width)
    lines = write_snapshot(make_source().queue_changes(), options, width)
    text = "".join(join_line(line, lambda part: part.text) + "\n" for line in lines)
    check_frame(f"once_{width}.txt", text)
    assert "\x1b" not in text
    assert all(len(line) <= width for line in text.splitlines() if width and line.isascii())


def test_once_with_ascii_alone(still: None) -> None:
    changes = FakeSource(make_lab()).queue_changes()._replace(stale=STALE)
    options = TopOptions(ascii=True, unfolded=True, wanted=JobFilter(states=("PENDING",)), sort="-name,id")
    text = "".join(join_line(line, lambda part: part.text) + "\n" for line in write_snapshot(changes, options, 100))
    check_frame("once_ascii.txt", text)
    assert text.isascii()
    assert changes.now == NOW
