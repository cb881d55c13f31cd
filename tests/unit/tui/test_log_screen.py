"""Logs as a user reads them: stories with a source in memory."""

from __future__ import annotations

import os
import time
import tracemalloc
from pathlib import Path

import pytest
from tests.unit.tui.fake_source import FakeSource, LogFile, job
from tests.unit.tui.log_stories import (
    NOW,
    fast_ticks,
    is_asked,
    make_source,
    notices,
    numbered,
    read_log,
    said,
    shown,
)
from tests.unit.tui.stories import settle
from textual.geometry import Offset
from textual.pilot import Pilot
from textual.selection import Selection

from overspan.bridge.model.errors import Denied, Unreachable
from overspan.bridge.model.log_matching import LONGEST
from overspan.tui.logs.lines import CUT
from overspan.tui.logs.screen import LogScreen
from overspan.tui.logs.window import PART, TRUNCATED

__all__ = ["fast_ticks"]


def test_the_end_is_followed_until_the_reader_goes_up() -> None:
    source = make_source(*numbered(100))

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-1:] == ["line 99"])
        assert "following" in said(screen)
        source.write("1", b"line 100\nhalf")
        await settle(pilot, lambda: shown(screen)[-2:] == ["line 100", "half"])
        await pilot.press("k")
        top = shown(screen)[0]
        source.write("1", b" a line\nline 102\nline 103\n")
        await settle(pilot, lambda: "+3 new lines" in said(screen))
        assert shown(screen)[0] == top
        await pilot.press("F")
        await settle(pilot, lambda: shown(screen)[-3:] == ["half a line", "line 102", "line 103"])
        assert "new lines" not in said(screen)

    read_log(source, story)


def test_a_display_that_stands_still_takes_no_lines_until_it_goes_on() -> None:
    source = make_source("one")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["one"])
        await pilot.press("p")
        await settle(pilot, lambda: said(screen).startswith("paused"))
        source.write("1", b"two\n")
        await pilot.pause(0.5)
        assert shown(screen) == ["one"]
        await pilot.press("p")
        await settle(pilot, lambda: shown(screen) == ["one", "two"] and said(screen).startswith("following"))

    read_log(source, story)


def test_all_keys_that_go_up_stop_the_following() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        for key in ("up", "k", "pageup", "ctrl+b", "b", "ctrl+u", "home", "g"):
            await pilot.press("F")
            assert screen.view.following
            await pilot.press(key)
            assert not screen.view.following
        for key in ("end", "G", "F"):
            await pilot.press("g")
            await pilot.press(key)
            assert screen.view.following

    read_log(make_source(*numbered(100)), story)


def test_the_whole_log_is_reached_upwards_and_downwards() -> None:
    count = 3 * PART // 100
    lines = [f"{number:06d} {'x' * 92}" for number in range(count)]

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-1:] == [lines[-1][:79]])
        await pilot.press("g")
        await settle(pilot, lambda: shown(screen)[:1] == [lines[0][:79]])
        await pilot.press("percent_sign", "5", "0", "enter")
        await settle(pilot, lambda: abs(int(shown(screen)[0][:6]) - count // 2) < 3)
        for _ in range(12):
            screen.action_page(-6)
            await pilot.pause(0.01)
        await settle(pilot, lambda: int(shown(screen)[0][:6]) < count // 2 - 1000)
        for _ in range(36):
            screen.action_page(6)
            await pilot.pause(0.01)
        await settle(pilot, lambda: int(shown(screen)[0][:6]) > count // 2 + 1000)
        texts = shown(screen)
        first = int(texts[0][:6])
        assert [text[:6] for text in texts] == [f"{first + at:06d}" for at in range(len(texts))]

    read_log(make_source(*lines), story)


class HugeFile(LogFile):
    """A log of any size, which is nowhere."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size
        self.asked = 0

    def read(self, offset: int, limit: int) -> bytes:
        """Lines of 100 bytes, each with its number."""
        end = min(offset + limit, self.size)
        self.asked += max(0, end - offset)
        first, last = offset // 100, -(-end // 100)
        data = b"".join(b"%011d %s\n" % (number, b"x" * 87) for number in range(first, last))
        return data[offset - first * 100 : end - first * 100]


def test_a_log_of_a_gigabyte_opens_at_its_end_and_memory_stays_flat() -> None:
    source, file = FakeSource([job(1)]), HugeFile(1 << 30)
    source.write("1", file)

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-2:-1] == [f"{(1 << 30) // 100 - 1:011d} {'x' * 67}"])
        assert file.asked <= 2 * PART
        tracemalloc.start()
        try:
            for percent in range(0, 100, 16):
                screen._go_to_percent(percent)
                await settle(pilot, lambda: not screen.session._asking)
                first = screen.view.first_row
                assert first is not None and abs(first.line.begin / file.size * 100 - percent) < 0.1
                for _ in range(4):
                    screen.action_page(-50)
                    await settle(pilot, lambda: not screen.session._asking)
            await settle(pilot, lambda: not screen.session._asking)
            assert tracemalloc.get_traced_memory()[1] < 24 << 20
        finally:
            tracemalloc.stop()

    read_log(source, story)


def test_logs_of_a_group_are_merged_by_time_with_names() -> None:
    source = FakeSource([job(1)])
    source.write("1", b"a1\n", "trainer", at=NOW)
    source.write("1", b"b1\nb2\n", "rollout", at=NOW + 1)
    source.write("1", b"a2\n", "trainer", at=NOW + 2)
    source.write("1", b"oh\n", "trainer", at=NOW + 3, stream="error")
    merged = ["trainer-0 │ a1", "rollout-0 │ b1", "rollout-0 │ b2", "trainer-0 │ a2", "trainer-0 ! oh"]

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == merged)
        assert "all 2, output and error" in said(screen, "#lines-head")
        source.write("1", b"b3\n", "rollout", at=NOW + 4)
        await settle(pilot, lambda: shown(screen) == [*merged, "rollout-0 │ b3"])
        await pilot.press("right_square_bracket")
        await settle(pilot, lambda: shown(screen) == ["trainer-0 │ a1", "trainer-0 │ a2", "trainer-0 ! oh"])
        await pilot.press("e")
        await settle(pilot, lambda: shown(screen) == ["a1", "a2"])
        await pilot.press("e")
        await settle(pilot, lambda: shown(screen) == ["oh"])
        await pilot.press("e", "right_square_bracket")
        await settle(pilot, lambda: shown(screen) == ["b1", "b2", "b3"])
        await pilot.press("right_square_bracket")
        await settle(pilot, lambda: shown(screen) == [*merged[:5], "rollout-0 │ b3"])
        await pilot.press("left_square_bracket")
        await settle(pilot, lambda: "rollout-0" in said(screen, "#lines-head"))

    read_log(source, story)


def test_a_further_member_of_an_elastic_task_is_one_of_its_group() -> None:
    source = FakeSource([job(1)])
    source.write("1", b"a1\n", "trainer", at=NOW)
    source.write("1", b"b1\n", "rollout", at=NOW + 1)
    source.write("1", b"c1\n", "rollout", at=NOW + 2, node=2, job="7")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["trainer-0 │ a1", "rollout-0 │ b1", "rollout-2 │ c1"])
        await pilot.press("left_square_bracket")
        await settle(pilot, lambda: shown(screen) == ["c1"] and "rollout-2" in said(screen, "#lines-head"))

    read_log(source, story)


def test_earlier_attempts_are_read_and_a_new_one_is_followed() -> None:
    source = FakeSource([job(1)])
    source.write("1", b"first try\n", at=NOW)
    source.write("1", b"second try\n", at=NOW + 5, attempt=1)

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["second try"])
        assert "attempt 1 of 0-1" in said(screen, "#lines-head")
        await pilot.press("left_curly_bracket")
        await settle(pilot, lambda: shown(screen) == ["first try"])
        assert "attempt 0 of 0-1" in said(screen, "#lines-head")
        await pilot.press("left_curly_bracket")
        assert "there is no such attempt" in notices(screen)
        await pilot.press("right_curly_bracket")
        await settle(pilot, lambda: shown(screen) == ["second try"])
        source.write("1", b"third try\n", attempt=2)
        await settle(pilot, lambda: shown(screen)[-1:] == ["third try"])
        assert "attempt 2 begins" in shown(screen)[1]

    read_log(source, story)


def test_long_lines_are_cut_folded_and_moved() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 3)
        assert shown(screen)[0] == "0123456789" * 7 + "012345678"
        await pilot.press("right")
        assert shown(screen)[0].startswith("6789") and shown(screen)[1] == ""
        await pilot.press("left", "w", "g")
        assert shown(screen)[:2] == ["0123456789" * 7 + "012345678", "90123456789"]
        assert len(shown(screen)) == 24 - 3 and shown(screen)[3] == "y" * 79
        await pilot.press("G")
        assert "".join(shown(screen)).endswith(CUT)

    read_log(make_source("0123456789" * 9, "short", "y" * (LONGEST + 5)), story)


def test_wide_letters_are_folded_by_cells() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 1)
        await pilot.press("w")
        assert [len(text) for text in shown(screen)] == [39, 11]
        for y in range(3):
            assert screen.view.render_line(y).cell_length == 80

    read_log(make_source("日" * 50), story)


def test_times_and_numbers_where_they_are_known() -> None:
    source = FakeSource([job(1)])
    source.write("1", b"one\n", at=NOW)
    source.write("1", b"two\nthree\n", at=NOW + 61)

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["one", "two", "three"])
        await pilot.press("T", "number_sign")
        times = [time.strftime("%m-%d %H:%M:%S", time.localtime(NOW + late)) for late in (0, 61, 61)]
        expected = [
            f"{at}        {n} {text}"
            for n, (at, text) in enumerate(zip(times, ["one", "two", "three"], strict=True), 1)
        ]
        wanted = [text.replace("  ", " ") for text in expected]
        await settle(pilot, lambda: [text.replace("  ", " ") for text in shown(screen)] == wanted)
        assert not notices(screen)
        await pilot.press("percent_sign", *time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(NOW + 30)), "enter")
        await settle(pilot, lambda: not screen.view.following)

    read_log(source, story)


def test_times_that_are_not_known_are_not_made_up() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["one"])
        await pilot.press("T")
        await settle(pilot, lambda: shown(screen) == ["-              one"])
        await settle(pilot, lambda: "when this was written is not known" in notices(screen))
        await pilot.press("percent_sign", *"10m", "enter")
        assert is_asked(screen)

    read_log(make_source("one"), story)


def test_a_mark_is_drawn_below_what_there_is() -> None:
    source = make_source("one")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["one"])
        await pilot.press("m")
        source.write("1", b"two\n")
        await settle(pilot, lambda: shown(screen)[-1:] == ["two"])
        assert shown(screen)[1].startswith("──── ") and len(shown(screen)) == 3

    read_log(source, story)


def test_a_log_is_saved_to_a_new_file_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = make_source("\x1b[31mone", "two")
    (tmp_path / "there").write_text("mine")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 2)
        await pilot.press("s", "enter")
        await settle(pilot, lambda: (tmp_path / "span-1.log").exists())
        await settle(pilot, lambda: any("saved" in notice for notice in notices(screen)))
        assert (tmp_path / "span-1.log").read_bytes() == b"\x1b[31mone\ntwo\n"
        await pilot.press("s", *["backspace"] * 20, *"there", "enter")
        await settle(pilot, lambda: any("exists already" in notice for notice in notices(screen)))
        assert (tmp_path / "there").read_text() == "mine"

    read_log(source, story)


def test_what_is_not_saved_whole_is_not_left(tmp_path: Path) -> None:
    source, path = make_source(*numbered(5)), tmp_path / "half"

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 5)
        screen._stopped.set()
        screen._save(str(path))
        await settle(pilot, lambda: any("was not saved: the log was closed" in notice for notice in notices(screen)))
        assert not path.exists()
        screen._save(str(tmp_path / "no" / "folder"))
        await settle(pilot, lambda: any("cannot be written: No such file" in notice for notice in notices(screen)))

    read_log(source, story)


def test_a_program_without_a_terminal_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PAGER", "cat")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 5)
        await pilot.press("v")
        await settle(pilot, lambda: any("no terminal for another program" in notice for notice in notices(screen)))
        assert not list(tmp_path.iterdir())

    read_log(make_source(*numbered(5)), story)


def test_the_mouse_scrolls_selects_and_points() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-1:] == ["line 99"])
        first, height = shown(screen)[0], screen.view.size.height
        screen.view.scroll_rows(-3)
        assert shown(screen)[3] == first and not screen.view.following
        selection = Selection(Offset(5, 0), Offset(4, 1))
        begin = 100 - height - 3
        assert screen.view.get_selection(selection) == (f"{begin}\nline", "\n")
        await pilot.click(screen.view, offset=(79, 0))
        assert shown(screen)[0] == "line 0"

    read_log(make_source(*numbered(100)), story)


def test_lines_that_stay_where_they_are_are_not_painted_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source, painted = make_source(*numbered(100)), []

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen)[-1:] == ["line 99"])
        await pilot.press("g")
        await pilot.pause()
        monkeypatch.setattr(screen.view, "refresh", lambda *regions, **named: painted.append(regions))
        source.write("1", b"line 100\n")
        await settle(pilot, lambda: "+1 new line," in said(screen))
        # The bar on the right may move.
        assert all(region.width == 1 for regions in painted for region in regions) and len(painted) <= 1

    read_log(source, story)


def test_a_log_that_was_truncated_goes_on_below_a_mark() -> None:
    source = make_source("old one", "old two")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 2)
        (key,) = source.streams_of["1"]
        source.replace_log("1", key, b"new\n")
        await settle(pilot, lambda: shown(screen) == ["old one", "old two", f"──── {TRUNCATED} ────", "new"])

    read_log(source, story)


def test_a_job_without_logs_says_why() -> None:
    source = FakeSource([job(1, state="PENDING")])
    source.details["1"] = {"state": "PENDING", "reason": "Resources", "tasks": [{"name": "main"}]}

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: any("job 1 has not started: PENDING (Resources)" in text for text in shown(screen)))
        source.write("1", b"now\n")
        await settle(pilot, lambda: shown(screen) == ["now"])

    read_log(source, story)


def test_a_lost_daemon_is_said_and_the_lines_stay() -> None:
    source = make_source(*numbered(5))

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 5)
        source.log_trouble = Unreachable("the daemon is not running")
        await settle(pilot, lambda: "the daemon is not running" in said(screen))
        assert shown(screen) == numbered(5)
        source.log_trouble = None
        source.write("1", b"line 5\n")
        await settle(pilot, lambda: shown(screen) == numbered(6))
        assert "not running" not in said(screen)

    read_log(source, story)


def test_who_may_not_read_is_told_so() -> None:
    source = make_source("secret")
    source.log_trouble = Denied("Access/permission denied: only its owner may read what a job has written")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: any("only its owner may read" in text for text in shown(screen)))
        await pilot.press("slash", "g", "F", "n", "m", "s", "v", "escape", "k", "j", "w", "T")

    read_log(source, story)


def test_nothing_that_a_log_prints_reaches_the_terminal() -> None:
    hostile = [
        "\x1b]0;title\x07\x1b[2J",
        "\x1b]52;c;aGk=\x07",
        "[bold]x[/bold] [@click=quit]y[/]",
        "\u202eabc",
        "\x9b31mx",
    ]
    source = FakeSource([job(1, name="\x1b[31m[red]evil\u202e")])
    source.write("1", ("\n".join(hostile) + "\n\x00\x01\xff\n").encode("latin-1", "replace"), path="/tmp/\x1b[2Jx")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) > 3)
        await pilot.press("slash", *"x", "enter")
        await pilot.pause()
        painted = [screen.view.render_line(y).text for y in range(screen.view.size.height)]
        texts = [*painted, said(screen), said(screen, "#lines-head")]
        assert not [
            text
            for text in texts
            if any(ord(letter) < 32 or 127 <= ord(letter) < 160 or letter == "\u202e" for letter in text)
        ]
        assert "[bold]x[/bold] [@click=quit]y[/]" in shown(screen)

    read_log(source, story)


def test_colours_of_a_log_are_styles() -> None:
    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: shown(screen) == ["plain bold red"])
        styles = {segment.text: segment.style for segment in screen.view.render_line(0)}
        red, bold = styles["red"], styles["bold "]
        assert red is not None and red.color is not None and red.color.number == 1
        assert bold is not None and bold.bold

    read_log(make_source("plain \x1b[1mbold \x1b[0;31mred\x1b[0m"), story)


def test_the_end_of_a_job_is_said() -> None:
    source = make_source("done")
    source.over = True

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: "the job has printed all" in said(screen))
        await pilot.press("q")
        assert not isinstance(screen.app.screen, LogScreen)

    read_log(source, story)


def test_a_late_answer_does_not_replace_a_newer_one() -> None:
    source = FakeSource([job(1)])
    source.write("1", b"a\n", "slow", at=NOW)
    source.write("1", b"b\n", "quick", at=NOW)

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(shown(screen)) == 2)
        await pilot.press("right_square_bracket", "right_square_bracket")
        await settle(pilot, lambda: shown(screen) == ["b"])
        await pilot.pause(0.2)
        assert shown(screen) == ["b"]

    read_log(source, story)


FRAMES = Path(__file__).parent / "frames"


@pytest.mark.parametrize("size", [(80, 24), (140, 40)])
def test_the_screen_looks_as_it_did(size: tuple[int, int]) -> None:
    source = FakeSource([job(1, name="rlhf")])
    for step in range(30):
        source.write("1", f"step {step} reward 0.{step:03d} {'日本' * (step % 3)}\n".encode(), "trainer", at=NOW + step)
        source.write("1", f"batch {step}\n".encode(), "rollout", at=NOW + step, node=1)
    source.write("1", b"warning: [clip] 10%\rwarning: [clip] 100%\n", "trainer", at=NOW + 31, stream="error")

    async def story(screen: LogScreen, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: "warning" in shown(screen)[-1])
        await pilot.press("slash", *"reward 0.02", "enter")
        # The line that was typed into gives its row back after the search.
        await settle(pilot, lambda: "/reward 0.02: 10 lines" in said(screen) and len(shown(screen)) == size[1] - 3)
        lines = [said(screen, "#lines-head"), *shown(screen), said(screen)]
        compare(f"logs-{size[0]}x{size[1]}.txt", "\n".join(lines) + "\n")

    read_log(source, story, size)


def compare(name: str, frame: str) -> None:
    """Hold a frame to the one that is kept; SPAN_RECORD_FRAMES=1 keeps this one."""
    path = FRAMES / name
    if os.environ.get("SPAN_RECORD_FRAMES"):
        path.parent.mkdir(exist_ok=True)
        path.write_text(frame)
    assert frame == path.read_text()
