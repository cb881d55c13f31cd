"""The window on a log: whatever parts are read in whatever order, its lines are lines of the log."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.log_matching import LONGEST
from overspan.tui.logs import window as module
from overspan.tui.logs.lines import CUT, Sgr, StyledPart, show_line, show_parts
from overspan.tui.logs.window import LINE_COST, TRUNCATED, LogWindow, Wanted


def read(window: LogWindow, log: bytes, wanted: Wanted | None) -> int:
    """Answer what a window wants."""
    assert wanted is not None
    return window.take(wanted.offset, log[wanted.offset : wanted.offset + wanted.limit], len(log))


def texts(window: LogWindow) -> list[str]:
    """What the window shows."""
    tail = [window.tail.text] if window.tail is not None else []
    return [line.text for line in window.lines] + tail


def test_a_small_log_is_there_at_once() -> None:
    window, log = LogWindow(), b"one\ntwo\nthr"
    read(window, log, window.want_end(len(log)))
    assert texts(window) == ["one", "two", "thr"]
    assert window.want_before() is None and window.before == 0
    log += b"ee\nfour\n"
    read(window, log, window.want_after())
    assert texts(window) == ["one", "two", "three", "four"]


LINES = st.lists(
    st.binary(max_size=60).map(lambda line: line.replace(b"\n", b"")) | st.just(b"10%\r50%\r100%"), max_size=60
)
STEPS = st.lists(st.sampled_from(["before", "after", "end", "middle", "grow"]), max_size=30)


@given(LINES, st.integers(8, 40), STEPS)
def test_lines_are_whole_lines_of_the_log(lines: list[bytes], part: int, steps: list[str]) -> None:
    log = b"".join(line + b"\n" for line in lines)
    grown = b"more\n"
    window = LogWindow(part, 4 * part + 4 * LINE_COST)
    read(window, log, window.want_end(len(log)))
    for step in steps:
        if step == "before" and window.want_before() is not None:
            read(window, log, window.want_before())
        elif step == "after":
            read(window, log, window.want_after())
        elif step == "grow":
            log += grown
            read(window, log, window.want_after())
        elif step == "end":
            read(window, log, window.want_end(len(log)))
        elif step == "middle":
            read(window, log, window.want_at(len(log) // 2, len(log)))
        check_window(window, log, part)


def check_window(window: LogWindow, log: bytes, part: int) -> None:
    """Its lines are those of the log, in one piece, and no more than it may hold."""
    shown = [*window.lines, *([window.tail] if window.tail is not None else [])]
    assert all(one.end == other.begin for one, other in itertools.pairwise(shown))
    if shown:
        assert (shown[0].begin, shown[-1].end) == (window.begin, window.end)
    for line in shown:
        raw = log[line.begin : line.end]
        assert b"\n" not in raw[:-1]
        begin, end = log.rfind(b"\n", 0, line.begin) + 1, log.find(b"\n", line.begin) + 1 or len(log)
        if (begin, end) != (line.begin, line.end):
            # Of a line that is longer than a part, or has no end yet.
            assert end - begin > part or line.end == window.end
        assert show_line(line.data) == show_line(raw.removesuffix(b"\n"))
    assert len(window.lines) <= 2 or sum(len(line.data) + LINE_COST for line in window.lines) <= window._kept + (
        part + OVER
    ) * (LINE_COST + 1)


OVER = module.OVERLAP


def test_a_line_of_any_size_is_shown_in_parts_and_held_in_little() -> None:
    window, log = LogWindow(1000, 100_000), b"x" * 50_000
    read(window, log, window.want_end(len(log)))
    assert window.tail is None and [len(line.data) for line in window.lines] == [1001]
    assert read(window, log, window.want_before()) == 1


def test_a_progress_bar_of_any_size_is_one_line() -> None:
    window, log = LogWindow(1000, 100_000), b"".join(b"\r%d%% of it" % number for number in range(5000))
    read(window, log, window.want_at(0, len(log)))
    while window.behind:
        read(window, log, window.want_after())
    assert texts(window) == ["4999% of it"] and window.tail is not None and len(window.tail.data) < 20
    read(window, log, window.want_end(len(log)))
    while window.want_before() is not None:
        assert read(window, log, window.want_before()) == 0
    assert texts(window) == ["4999% of it"]


def test_lines_are_counted_from_the_beginning() -> None:
    log = b"".join(b"line %d\n" % number for number in range(100))
    window = LogWindow(100, 20 * LINE_COST)
    read(window, log, window.want_at(0, len(log)))
    while window.behind:
        read(window, log, window.want_after())
    assert window.before is not None and texts(window)[0] == f"line {window.before}" and window.before > 50
    read(window, log, window.want_end(len(log)))
    assert window.before is None


def test_a_log_that_became_shorter_begins_again_below_a_mark() -> None:
    window, log = LogWindow(), b"one\ntwo\n"
    read(window, log, window.want_end(len(log)))
    log = b"new\n"
    read(window, log, window.want_after())
    read(window, log, window.want_after())
    assert texts(window) == ["one", "two", TRUNCATED, "new"]
    assert window.want_before() is None


def test_a_log_that_was_rotated_and_has_grown_begins_again_below_a_mark() -> None:
    window, log = LogWindow(), b"one\ntwo\n"
    read(window, log, window.want_end(len(log)))
    log = b"new\nother\nthird\n"
    read(window, log, window.want_after())
    read(window, log, window.want_after())
    assert texts(window) == ["one", "two", TRUNCATED, "new", "other", "third"]


def test_what_its_node_has_rotated_away_is_no_more_asked_for() -> None:
    window = LogWindow(100)
    wanted = window.want_end(1000)
    window.take(wanted.offset, (b"x" * 49 + b"\n") * 2 + b"y", 1000)
    before = window.want_before()
    assert before is not None
    window.take(before.offset + 30, b"k" * 19 + b"\n" + b"l" * 49 + b"\n", 1000, gap=30)
    assert window.want_before() is None


def test_a_mark_is_a_line_of_its_own_at_its_place() -> None:
    window, log = LogWindow(), b"one\nha"
    read(window, log, window.want_end(len(log)))
    window.mark("noon")
    log += b"lf\ntwo\n"
    read(window, log, window.want_after())
    assert texts(window) == ["one", "ha", "noon", "lf", "two"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b" 10%\r 50%\r100%", "100%"),
        (b"dos\r", "dos"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07name", "name"),
        (b"\x1b]0;title", "?]0;title"),
        (b"\x1b[2J\x1b[Hclean", "clean"),
        (b"\x9b31m \x00 \xff", "\ufffd31m ? \ufffd"),
        ("\x9b31m".encode(), "?31m"),
        ("\u202eevil".encode(), "?evil"),
        (b"[batch] n[0-3] [bold]", "[batch] n[0-3] [bold]"),
        (b"a\tb", "a       b"),
        (b"x" * (LONGEST + 1), "x" * LONGEST + CUT),
    ],
)
def test_lines_are_shown_without_what_a_terminal_would_obey(line: bytes, shown: str) -> None:
    assert show_line(line) == shown


@given(st.binary(max_size=200))
def test_no_control_character_is_ever_shown(line: bytes) -> None:
    assert not any(ord(letter) < 32 or 127 <= ord(letter) < 160 for letter in show_line(line))


@pytest.mark.parametrize(
    ("sequence", "style"),
    [
        ("31", Sgr(colour=1)),
        ("1;97;104", Sgr(colour=15, background=12, bold=True)),
        ("38;5;200", Sgr(colour=200)),
        ("48;2;1;2;3", Sgr(background=(1, 2, 3))),
        ("38:5:9", Sgr(colour=9)),
        ("38;5", Sgr()),
        ("38;2;1;2;999", Sgr()),
        ("31;39", Sgr()),
        ("1;3;4;7;9;22;23;24;27;29", Sgr()),
        ("31;0", Sgr()),
        ("?25", Sgr()),
        ("99999", Sgr()),
    ],
)
def test_colours_are_parsed(sequence: str, style: Sgr) -> None:
    assert show_parts(f"\x1b[{sequence}mtext".encode()) == (StyledPart("text", style),)
