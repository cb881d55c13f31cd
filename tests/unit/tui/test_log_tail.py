"""The last lines of logs in the details: what is read of them, how they are written, and when they are looked at."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tui.detail_lines import document
from tests.unit.tui.fake_source import FakeSource, LogFile, job
from tests.unit.tui.queue_lab import make_array
from tests.unit.tui.stories import play, settle
from textual.pilot import Pilot

from overspan.bridge.client.messages import LogPart, StreamKey
from overspan.bridge.model.errors import Unreachable
from overspan.tui.app import TopApp
from overspan.tui.detail.layout import lay_out
from overspan.tui.detail.log_tail import LogTail, TailLine, TailReader, take_last, tell_output


class CountedSource(FakeSource):
    """A lab that counts what is read of logs."""

    def __init__(self, *rows: Any) -> None:
        super().__init__(rows)
        self.looks = 0
        self.parts: list[tuple[str, int, int]] = []

    def streams(self, ref: str, times: bool = False) -> list[Any]:
        self.looks += 1
        assert not times
        return super().streams(ref, times)

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        self.parts.append((key.task, offset, limit))
        return super().log_part(ref, key, offset, limit)


def write(tail: LogTail, width: int = 80, runs: bool = True) -> list[str]:
    """The section as text."""
    section = tell_output(tail, runs)
    blocks = section.blocks if section is not None else ()
    return ["".join(piece.text for piece in line) for block in blocks for line in lay_out(block, width)]


def test_the_last_lines_are_read_at_the_end_however_long_the_log_is() -> None:
    source = CountedSource()
    source.write("7", b"x" * 100_000 + b"\n" + b"".join(b"step %d\n" % step for step in range(2000)))
    reader = TailReader()
    tail = reader.read(source, "7")
    assert [line.text for line in tail.lines] == [f"step {step}" for step in range(1992, 2000)]
    assert [(limit, offset > 0) for _, offset, limit in source.parts] == [(8192, True)]
    # What has not grown is not read again; another job's log is.
    assert reader.read(source, "7") == tail and len(source.parts) == 1
    source.write("7", b"step 2000\n")
    assert reader.read(source, "7").lines[-1] == TailLine("", "step 2000") and len(source.parts) == 2
    source.write("8", b"other\n")
    assert [line.text for line in reader.read(source, "8").lines] == ["other"]


def test_a_log_of_one_line_without_end_is_shown_from_what_was_read() -> None:
    source = FakeSource()
    source.write("7", LogFile(b"y" * 50_000))
    [line] = TailReader().read(source, "7").lines
    assert set(line.text) == {"y"} and write(LogTail((line,)), 20) == ["y" * 19 + "…"]


def test_bars_are_a_line_and_nothing_reaches_the_terminal_raw() -> None:
    assert take_last(b"one\n 10%\r 50%\r100%\n\x1b[31mred\x1b[0m \x1b]0;title\x07end\n\n \n", 3) == [
        "one",
        "100%",
        "red end",
    ]
    assert take_last(b"\n\n", 3) == []


def test_logs_of_several_members_have_their_names_and_share_the_lines() -> None:
    source = FakeSource()
    source.write("42", b"old\n", "trainer")
    source.write("42", b"a1\na2\na3\na4\na5\n", "trainer", attempt=1)
    source.write("42", b"b1\n", "rollout", stream="error")
    source.write("42", b"", "reward")
    tail = TailReader().read(source, "42")
    assert write(tail) == [
        "trainer-0         a2",
        "trainer-0         a3",
        "trainer-0         a4",
        "trainer-0         a5",
        "rollout-0 stderr  b1",
    ]
    for number in range(9):
        source.write("43", b"x\n", f"t{number}")
    assert write(TailReader().read(source, "43"))[-1] == "1 more: `o` shows all"


def test_what_has_printed_nothing_says_so_while_it_runs() -> None:
    assert write(LogTail()) == ["nothing yet"] and write(LogTail(), runs=False) == []


def test_the_pane_shows_the_end_of_the_log_and_looks_while_it_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("overspan.tui.detail.log_tail.LEAST_SECONDS", 0.0)
    monkeypatch.setattr("overspan.tui.detail.log_tail.RESTS", 0)
    source = CountedSource(job(1), job(2, state="PENDING"))
    source.details = {"1": document(1), "2": document(2, state="PENDING")}
    source.write("1", b"step 1\n")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 2)
        pane = app.queue.pane
        assert source.looks == 0
        await pilot.press("d")
        await settle(pilot, lambda: "step 1" in pane.text())
        source.write("1", b"step 2\n")
        pane._tick()
        await settle(pilot, lambda: "step 2" in pane.text())
        # Nobody sees it: another place, the log's own screen, a display that stands still, a pane that is closed.
        for key, back in (("6", "1"), ("o", "q"), ("p", "p"), ("d", "d")):
            await pilot.press(key)
            await pilot.pause()
            seen = source.looks
            if key != "o":
                pane._tick()
                assert not pane._tail._under_way and source.looks == seen, key
            await pilot.press(back)
            await pilot.pause()
        await settle(pilot, lambda: not pane._tail._under_way)
        # What waits has no log to look at.
        await pilot.press("down")
        await settle(pilot, lambda: "PENDING" in pane.text())
        assert not pane._tail._ref and "Output" not in pane.text()

    play(source, story)


def test_a_log_that_cannot_be_read_hides_nothing_and_what_comes_above_moves_nothing() -> None:
    source = CountedSource(job(1))
    source.details = {"1": document(1)}
    source.scripts["1"] = "\n".join(f"line {number}" for number in range(40))
    source.log_trouble = Unreachable("no way to leo")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 1)
        await pilot.press("d")
        pane = app.queue.pane
        await settle(pilot, lambda: "line 39" in pane.text() and source.looks)
        await settle(pilot, lambda: not pane._tail._under_way)
        assert "no way" not in pane.text() and pane._tail.found is None
        pane.action_last()
        await pilot.pause()
        before = pane.scroll_offset.y, len(pane._lines)
        source.log_trouble = None
        source.write("1", b"a\nb\nc\n")
        pane._tail.look("1")
        await settle(pilot, lambda: "Output" in pane.text())
        await settle(pilot, lambda: pane.scroll_offset.y - before[0] == len(pane._lines) - before[1] == 5)

    play(source, story)


def test_a_folded_array_has_its_logs_in_its_elements() -> None:
    source = CountedSource(*make_array(7))
    source.details = {"7": document(7, comment="all of it"), "7_2": document(10, comment="one of it")}
    source.write("7_2", b"step 1\n")

    async def story(app: TopApp, pilot: Pilot[int]) -> None:
        await settle(pilot, lambda: len(app.queue.table.lines) == 1)
        await pilot.press("d")
        await settle(pilot, lambda: "all of it" in app.queue.pane.text())
        assert not source.looks
        await pilot.press("right", "down")
        app.queue.table.move_to(next(line.key for line in app.queue.table.lines if line.node.ref == "7_2"))
        await settle(pilot, lambda: "step 1" in app.queue.pane.text())

    play(source, story)
