"""Faults while the application is open: a full disk, a missing right, a daemon of another version, another size."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tui.fake_source import FakeSource, job
from tests.unit.tui.frames import read_frame
from tests.unit.tui.labs import make_lab
from tests.unit.tui.log_stories import make_source, notices, numbered, read_log, shown
from tests.unit.tui.order_stories import answer, begin, read_notes
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot
from textual.widgets import TextArea

from overspan.bridge.client.messages import CancelOrder
from overspan.bridge.client.transport import foreign
from overspan.bridge.model.errors import Denied, Unreachable
from overspan.tui.app import TopApp
from overspan.tui.dialogs.edit_dialog import EditDialog
from overspan.tui.dialogs.order_dialog import OrderDialog
from overspan.tui.logs.screen import LogScreen
from overspan.tui.places.list_place import ListPlace

SIZES = ((40, 10), (200, 60), (20, 5), (80, 24))


def fill_disk(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let what is written to a file of this name meet the kernel's full device."""
    open_file: Callable[..., int] = os.open

    def open_full(path: Any, flags: int, *more: Any, **named: Any) -> int:
        if os.path.basename(os.fspath(path)) != name:
            return open_file(path, flags, *more, **named)
        os.close(open_file(path, flags, *more, **named))
        return open_file("/dev/full", os.O_WRONLY | os.O_CLOEXEC)

    monkeypatch.setattr(os, "open", open_full)


@pytest.mark.parametrize("lines", [5, 50_000], ids=["found-at-the-end", "found-on-the-way"])
def test_a_log_that_a_full_disk_does_not_take_is_said_and_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: int
) -> None:
    fill_disk(monkeypatch, "full.log")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) >= 5)
        screen._save(str(tmp_path / "full.log"))
        await settle(pilot, lambda: any("full.log was not saved: No space left" in text for text in notices(screen)))
        assert list(tmp_path.iterdir()) == []
        screen._save(str(tmp_path / "next.log"))
        await settle(pilot, lambda: any("next.log: " in text and "saved" in text for text in notices(screen)))

    read_log(make_source(*numbered(lines)), story)


def test_a_copy_for_a_pager_that_has_no_room_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 5)
        await pilot.press("v")
        await settle(pilot, lambda: any("cannot be copied" in text for text in notices(screen)))
        monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
        fill_disk(monkeypatch, "log")
        await pilot.press("v")
        await settle(pilot, lambda: any("No space left" in text for text in notices(screen)))
        assert list(tmp_path.iterdir()) == []

    read_log(make_source(*numbered(5)), story)


@pytest.mark.parametrize("key", ["4", "5", "6", "7"])
def test_who_may_not_look_at_a_place_reads_why_there_and_goes_on(key: str) -> None:
    source = make_lab()

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        source.lost = Denied("Access/permission denied: ana may not see this", remedy="ask root")
        await pilot.press(key)
        place = app.place
        assert isinstance(place, ListPlace)
        await settle(pilot, lambda: "no answer: Access/permission denied: ana may not see this" in read_frame(place))
        await pilot.press("down", "enter", "G", "slash", *"zz", "escape", "s", "S", "space")
        assert app.place is place and app.is_running
        source.lost = None
        await pilot.press("r")
        await settle(pilot, lambda: place.table.lines and "denied" not in read_frame(place))

    play(source, story, size=(140, 24))


def test_a_cluster_whose_nodes_may_not_be_seen_says_so_beside_the_others() -> None:
    source = make_lab()
    tell = source.nodes

    def refuse(clusters: Any = ()) -> dict[str, Any]:
        if "leo" in clusters:
            raise Denied("Access/permission denied: PrivateData")
        return tell(clusters)

    source.nodes = refuse  # type: ignore[method-assign]

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await pilot.press("4")
        await settle(pilot, lambda: "PrivateData" in read_frame(app.place) and "no route" in read_frame(app.place))

    play(source, story, size=(140, 24))


def test_a_daemon_of_another_version_is_named_and_the_lines_stay() -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        source.lose(foreign("it speaks format 9, this command format 1"))
        await settle(pilot, lambda: "the daemon is of another version" in read_frame(app.screen))
        assert "no daemon" not in read_frame(app.screen) and "fit" in read_frame(app.queue)
        source.refusal = source.lost
        await pilot.press("c")
        await answer(pilot, "y")
        await settle(pilot, lambda: len(app.order_log) == 1)
        assert "another version" in next(iter(app.order_log)).answer and source.orders == []
        source.lost = source.refusal = None
        source.put(job(8))
        await pilot.press("r")
        await settle(pilot, lambda: len(app.queue.jobs) == 2)
        assert "another version" not in read_frame(app.queue)

    play(source, story, size=(140, 24))


def test_why_no_daemon_can_be_started_is_told_in_full() -> None:
    source = FakeSource([job(7)])
    long = "the daemon cannot start: /home/ana/.config/overspan/config.yaml:1:36: there is no kind 'slum'"

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        source.lose(Unreachable("the daemon is not running"))
        await settle(pilot, lambda: app.lost is not None)
        assert read_notes(app) == ""
        source.lose(Unreachable(long, remedy="one of local, slurm, kubernetes"))
        await pilot.press("r")
        await settle(pilot, lambda: f"{long}; one of local, slurm, kubernetes" in read_notes(app))

    play(source, story, size=(80, 24))


def test_a_daemon_of_another_version_at_the_start_says_what_to_do() -> None:
    source = FakeSource([job(7)])
    source.lose(foreign("its answer is not JSON (HTTP status 200)"))

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: "end it with `span shutdown`" in read_notes(app))
        await settle(pilot, lambda: "no answer: the daemon is of another version" in read_frame(app.screen))
        assert app.is_running

    play(source, story, size=(80, 24))


@pytest.mark.parametrize(("key", "keys"), [("c", ("y",)), ("n", ("ctrl+s",))])
def test_another_size_keeps_the_dialog_and_its_targets(key: str, keys: tuple[str, ...]) -> None:
    source = FakeSource([job(7)])

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await begin(app, pilot)
        await pilot.press(key)
        await settle(pilot, lambda: isinstance(app.screen, (OrderDialog, EditDialog)) and app.screen._seen)
        dialog = app.screen
        if isinstance(dialog, EditDialog):
            dialog.query_one(TextArea).text = "time: 2:00:00"
        source.put(job(8))
        for columns, lines in SIZES:
            await pilot.resize_terminal(columns, lines)
            assert app.size == (columns, lines) and app.screen is dialog
        assert all(button.region.bottom <= 24 for button in dialog.query("Button"))
        assert "leo:7 fit" in read_frame(dialog) and "leo:8" not in read_frame(dialog)
        await pilot.press(*keys)
        await settle(pilot, lambda: len(source.orders) == 1)
        wanted = {"c": ("cancel", CancelOrder(refs=("7",))), "n": ("resubmit", ("7", False, {"time": "2:00:00"}))}
        assert source.orders == [wanted[key]]

    play(source, story)
