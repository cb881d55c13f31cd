"""Lines of several logs: whole, prefixed, and progress bars while they go on."""

from __future__ import annotations

import pytest

from overspan.bridge.cli.jobs.log_lines import LinePrinter
from overspan.bridge.client import Stream
from overspan.bridge.model.durations import format_timestamp

PAUSE = b"PAUSE"
A, B = Stream("a", 0, 0, "output"), Stream("b", 1, 0, "output")


def _print(*parts: tuple[Stream, bytes]) -> list[bytes]:
    lines: list[bytes] = []
    printer = LinePrinter(lines.append)
    for stream, data in parts:
        if data == PAUSE:
            printer.pause()
            lines.append(PAUSE)
        else:
            printer.feed(stream, data)
    printer.close()
    return [line.removesuffix(b"\n") for line in lines]


def test_merged_lines_never_mix() -> None:
    parts = [(A, b"one\ntw"), (B, b"x"), (A._replace(size=9), b"o\n\n"), (A, PAUSE), (B, b"y")]
    assert _print(*parts) == [b"a-0 | one", b"a-0 | two", b"a-0 | ", PAUSE, b"b-1 | xy"]


@pytest.mark.parametrize(
    ("parts", "lines"),
    [
        # tqdm: a carriage return before each state, a line feed at the end.
        ([b"\r 1%", PAUSE, b"\r 2%", PAUSE, b"\r100%\n"], [b" 1%", PAUSE, b" 2%", PAUSE, b"100%"]),
        ([b"\r100%", PAUSE, b"\n", b"end\n"], [b"100%", PAUSE, b"end"]),
        # Others write it behind each state.
        ([b"1%\r", PAUSE, PAUSE, b"2%\r", PAUSE, b"\n"], [b"1%", PAUSE, PAUSE, b"2%", PAUSE]),
        ([b"1%\r2%\r3%\r4%\n"], [b"4%"]),
        ([b"1%\r2%\r3%"], [b"2%", b"3%"]),
        ([b"dos\r\nlines\r", b"\n", b"\r\n"], [b"dos", b"lines", b""]),
        ([b"a line", PAUSE, b" whole\n"], [PAUSE, b"a line whole"]),
    ],
)
def test_a_progress_bar_is_shown_as_it_moves(parts: list[bytes], lines: list[bytes]) -> None:
    expected = [line if line == PAUSE else b"a-0 | " + line for line in lines]
    assert _print(*((A, part) for part in parts)) == expected


def test_lines_have_the_time_at_which_they_came() -> None:
    lines: list[bytes] = []
    printer = LinePrinter(lines.append, named=False, clock=lambda: 86400.0 * 365)
    printer.feed(A, b"old\n")
    printer.pause()
    printer.feed(A, b"new\n")
    assert lines == [b"-                   old\n", format_timestamp(86400.0 * 365).encode() + b" new\n"]
