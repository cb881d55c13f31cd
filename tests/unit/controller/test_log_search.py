"""Searching logs: from the end, in blocks, in a process that can be killed."""

from __future__ import annotations

import asyncio
import io
import json
import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.adapters.contract import LogPart
from overspan.bridge.controller.views import log_search
from overspan.bridge.controller.views.log_search import SLOW, LogMatches, LogPattern, search_log
from overspan.bridge.controller.views.match_process import serve
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.log_matching import compile_pattern, find_lines, keep_last, make_matcher


def search(log: bytes, wanted: LogPattern, first: int = 0) -> LogMatches:
    """One request about a log of which the bytes before `first` are lost."""

    async def read(offset: int, limit: int) -> LogPart:
        begin = max(offset, first)
        return LogPart(log[begin : begin + limit], begin, len(log), "/log", max(0, first - offset))

    return asyncio.run(search_log(read, wanted))


def search_all(log: bytes, wanted: LogPattern) -> list[str]:
    """All requests of a search, each going on where the one before ended; the lines that matched, newest first."""
    texts: list[str] = []
    end: int | None = None
    while end is None or end > wanted.begin:
        found = search(log, LogPattern(wanted.pattern, wanted.invert, wanted.begin, end, wanted.limit))
        assert end is None or found.begin < end
        texts += [line.data.decode() for line in found.lines]
        assert all(log[line.begin : line.end].rstrip(b"\n") == line.data for line in found.lines)
        end = found.begin
    return texts


def test_matching_lines_are_found_from_the_end() -> None:
    log = b"one error\ntwo\nthree Error\nfour error"
    assert search_all(log, LogPattern("error")) == ["four error", "three Error", "one error"]
    assert search_all(log, LogPattern("Error")) == ["three Error"]
    assert search_all(log, LogPattern("error", invert=True)) == ["two"]
    assert search_all(log, LogPattern("^t")) == ["three Error", "two"]
    assert search_all(log, LogPattern("o$")) == ["two"]
    assert search_all(b"", LogPattern("x")) == []


def test_a_log_of_many_blocks_is_searched_to_the_last_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "BLOCK", 64)
    lines = [f"line {number} {'x' * (number % 23)}" for number in range(200)]
    log = "\n".join(lines).encode()
    assert search_all(log, LogPattern("7 ")) == [line for line in reversed(lines) if "7 " in line]
    assert search_all(log, LogPattern("line", limit=7)) == lines[::-1]


def test_what_is_lost_is_said() -> None:
    found = search(b"gone error\nkept error\n", LogPattern("error"), first=11)
    assert [line.data for line in found.lines] == [b"kept error"] and (found.begin, found.first) == (11, 11)


def test_a_wrong_pattern_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="no regular expression"):
        search(b"x\n", LogPattern("("))


def test_a_pattern_that_takes_for_ever_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "BLOCK_SECONDS", 0.5)
    begun = time.monotonic()
    found = search(b"a" * 64 + b"!\n", LogPattern("(a+)+$"))
    assert found.trouble == SLOW and not found.lines and time.monotonic() - begun < 30


def test_a_request_is_short_whatever_the_size_of_the_log(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_search, "SECONDS", 0.0)
    found = search(b"x\n" * 100, LogPattern("x"))
    assert (found.begin, found.lines) == (200, [])


def test_the_process_answers_each_block() -> None:
    asked = json.dumps({"pattern": "b", "invert": False}).encode() + b"\n"
    target = io.BytesIO()
    serve(io.BytesIO(asked + b"10 4\na\nb\n" + b"0 3\n\xffb\n"), target)
    assert [json.loads(line) for line in target.getvalue().splitlines()] == [[[12, 14, "b"]], [[0, 3, "\xffb"]]]


SHOWN: list[tuple[bytes, str]] = [
    (b"\x1b[31mERR\x1b[0mOR", "^ERROR$"),
    (b"10%\r20%\r30%", "^30%$"),
    (b"a\tb", "^a       b$"),
    (b"dos\r", "dos$"),
    ("größe".encode(), "^gr.{2}e$"),
]


@pytest.mark.parametrize(("line", "pattern"), SHOWN)
def test_lines_match_as_they_are_shown(line: bytes, pattern: str) -> None:
    found = list(find_lines(b"first\n" + line + b"\nlast\n", 100, make_matcher(pattern)))
    assert [(one.begin, one.end) for one in found] == [(106, 106 + len(line) + 1)]


@given(st.lists(st.binary(max_size=20).map(lambda line: line.replace(b"\n", b"")), min_size=1, max_size=20))
def test_lines_are_where_they_are(lines: list[bytes]) -> None:
    log = b"\n".join(lines)
    found = list(find_lines(log, 0, make_matcher(""))) if log else []
    expected = lines if lines[-1] else lines[:-1]
    assert [log[one.begin : one.end].removesuffix(b"\n") for one in found] == (expected if log else [])
    assert all(one.data == keep_last(log[one.begin : one.end].removesuffix(b"\n")) for one in found)


def test_a_literal_is_looked_for_whatever_its_case_and_its_letters() -> None:
    log = "one\nTWO\ngröße two\nmeſſage\n".encode()
    for pattern, count in (("two", 2), ("TWO", 1), ("zz", 0), ("größe", 1), ("message", 1), ("t.o", 2), ("", 4)):
        assert len(list(find_lines(log, 0, make_matcher(pattern)))) == count, pattern
    assert len(list(find_lines(log, 0, make_matcher("zz", invert=True)))) == 4


@pytest.mark.parametrize(
    ("text", "flags"), [("error", re.IGNORECASE), ("Error", 0), (r"\S\W", re.IGNORECASE), (r"\Sx[A]", 0)]
)
def test_capital_letters_make_case_count(text: str, flags: int) -> None:
    assert compile_pattern(text).flags & re.IGNORECASE == flags


@pytest.mark.parametrize("text", ["(", "[[a", "x" * 2000, "(?P<n>", "a{1,99999999999999}"])
def test_wrong_patterns_are_value_errors(text: str) -> None:
    with pytest.raises(ValueError):
        compile_pattern(text)
