"""Several logs as one, by time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from overspan.bridge.cli.jobs.logs import read_since
from overspan.bridge.client.log_reading import find_since, key_of, order_pieces, read_parts, read_pieces
from overspan.bridge.client.messages import LogPart, LogSelection, Outcome, Stream, StreamKey

TEXT = b"".join(b"line %d\n" % number for number in range(100_000))


class Source:
    """One log of many lines, a second each thousand."""

    def __init__(self) -> None:
        self.reads = 0

    def streams(self, ref: str, times: bool = False) -> list[Stream]:
        marks = tuple((float(second), second * 10_000) for second in range(1, len(TEXT) // 10_000 + 2))
        return [Stream("a", 0, 0, "output", "", len(TEXT), marks=marks)]

    def log_part(self, ref: str, key: StreamKey, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        self.reads += 1
        return LogPart(TEXT[offset : offset + limit], offset, len(TEXT))

    def wait(self, ref: str, timeout: float | None = None) -> Outcome:
        return Outcome(True, "COMPLETED")


@pytest.mark.parametrize(("since", "first"), [(0.0, 0), (60.0, 54_646), (1e9, None)])
def test_what_came_since_begins_with_a_line_and_is_read_in_large_blocks(since: float, first: int | None) -> None:
    source = Source()
    data = b"".join(part.data for part in read_parts(source, "1", LogSelection(times=True, since=since)))
    assert data == (b"" if first is None else TEXT[TEXT.index(b"line %d\n" % first) :])
    assert source.reads <= 12


def test_a_log_that_nobody_noted_comes_first_and_whole() -> None:
    unknown = Stream("b", 0, 0, "output", "", 5)
    known = Stream("a", 0, 0, "output", "", 5, marks=((3.0, 2), (7.0, 9)))
    pieces = order_pieces([known, unknown], {key_of(known): 1, key_of(unknown): 0})
    assert [(piece.at, piece.stream.task, piece.begin, piece.end) for piece in pieces] == [
        (None, "b", 0, 5),
        (3.0, "a", 1, 2),
        (7.0, "a", 2, 5),
    ]
    assert (find_since(unknown, 9.0), find_since(known, 7.0), find_since(known, 7.1)) == (0, 2, 5)


def _give_next(parts: Iterator[LogPart], key: StreamKey, offset: int, limit: int) -> LogPart:
    return next(parts)


def test_a_log_that_has_lost_its_beginning_or_end_ends_the_reading() -> None:
    stream = Stream("a", 0, 0, "output", "", 30)
    whole = order_pieces([stream], {key_of(stream): 0})
    for part, expected in ((LogPart(b"rest", 26, 30), [(26, b"rest")]), (LogPart(b"", 0, 0), [])):
        parts = iter([part, LogPart(b"", 30, 30)])
        read = partial(_give_next, parts)
        assert [(piece.begin, data) for piece, data in read_pieces(whole, read)] == expected


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("1h30m", 5400), ("2d", 172800), ("now-1hour", 3600), ("1w1s", 604801)]
)
def test_how_long_ago(text: str, seconds: int) -> None:
    assert read_since(text, 2e9) == 2e9 - seconds
