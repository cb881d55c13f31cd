"""The window on a log: whatever parts are read in whatever order, its lines are lines of the log."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.tui.logs import window as module
from overspan.tui.logs.window import CUT, LONGEST, TRUNCATED, LogWindow, Wanted, show_line


def read(window: LogWindow, log: bytes, wanted: Wanted | None) -> int:
    """Answer what a window wants."""
    assert wanted is not None
    return window.take(wanted.offset, log[wanted.offset : wanted.offset + wanted.limit], len(log))


def texts(window: LogWindow) -> list[str]:
    """What the window shows."""
    return [line.text for line in window.lines] + ([window.tail] if window.tail else [])


def test_a_small_log_is_there_at_once() -> None:
    window, log = LogWindow(), b"one\ntwo\nthr"
    read(window, log, window.want_end(len(log)))
    assert texts(window) == ["one", "two", "thr"]
    assert window.want_before() is None
    log += b"ee\nfour\n"
    read(window, log, window.want_after())
    assert texts(window) == ["one", "two", "three", "four"]


@given(
    st.lists(st.binary(max_size=12).map(lambda line: line.replace(b"\n", b"").replace(b"\r", b"")), max_size=60),
    st.integers(8, 40),
    st.lists(st.sampled_from(["before", "after", "end", "middle"]), max_size=30),
)
def test_lines_are_whole_lines_of_the_log(lines: list[bytes], part: int, steps: list[str]) -> None:
    log = b"".join(line + b"\n" for line in lines)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART", part)
        patch.setattr(module, "KEPT", 4 * part)
        window = LogWindow()
        read(window, log, window.want_end(len(log)))
        for step in steps:
            if step == "before" and window.want_before() is not None:
                read(window, log, window.want_before())
            elif step == "after":
                read(window, log, window.want_after())
            elif step == "end":
                read(window, log, window.want_end(len(log)))
            elif step == "middle":
                read(window, log, window.want_at(len(log) // 2, len(log)))
            for line in window.lines:
                assert log[line.begin : line.end].endswith(b"\n")
                assert show_line(log[line.begin : line.end - 1]) == line.text
            pairs = list(window.lines)
            assert all(one.end == other.begin for one, other in itertools.pairwise(pairs))
            assert window.end - window.begin <= 6 * part


def test_a_log_that_became_shorter_begins_again_below_a_mark() -> None:
    window, log = LogWindow(), b"one\ntwo\n"
    read(window, log, window.want_end(len(log)))
    log = b"new\n"
    read(window, log, window.want_after())
    read(window, log, window.want_after())
    assert texts(window) == ["one", "two", TRUNCATED, "new"]


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b" 10%\r 50%\r100%", "100%"),
        (b"dos\r", "dos"),
        (b"\x1b[31mred\x1b[0m", "red"),
        (b"\x1b]0;title\x07name", "name"),
        (b"\x9b31m \x00 \xff", "\ufffd31m ? \ufffd"),
        ("\u202eevil".encode(), "?evil"),
        (b"[batch] n[0-3]", "[batch] n[0-3]"),
        (b"x" * (LONGEST + 1), "x" * LONGEST + CUT),
    ],
)
def test_lines_are_shown_without_what_a_terminal_would_obey(line: bytes, shown: str) -> None:
    assert show_line(line) == shown
