"""The line that tells a program's end, in logs that come in any pieces."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.adapters.kubernetes.logs.end_marks import EndMarkScanner, HeardEnd, leave_out, make_mark

MARK = make_mark("inst-7-0", "trainer", 0, 0, 0)
AT = "2026-11-21T22:00:00.250000001Z"
SECONDS = 1795298400.25
LINE = f"{AT} \036overspan-end {MARK} 0\n".encode()


def hear(*parts: bytes) -> HeardEnd | None:
    ear = EndMarkScanner(MARK)
    for part in parts:
        found = ear.scan(part)
        if found is not None:
            return found
    return None


@given(st.binary(max_size=300), st.lists(st.integers(0, 500), max_size=6))
def test_the_end_is_heard_in_whatever_pieces_it_comes(before: bytes, cuts: list[int]) -> None:
    data = b"\n".join((b"2026-11-21T21:59:59Z " + before.replace(b"\036", b""), LINE))
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    parts = [data[first:last] for first, last in itertools.pairwise(places)]
    assert hear(*parts) == HeardEnd(0, SECONDS)


def test_it_is_heard_behind_a_line_without_an_end_and_with_its_code() -> None:
    assert hear(f"{AT} half \036overspan-end {MARK} 137\n".encode()) == HeardEnd(137, SECONDS)


def test_a_line_that_was_written_in_parts_does_not_tell_the_time() -> None:
    bar = b"|" * (17 << 10)
    assert hear(AT.encode() + b" " + bar, b"\036overspan-end " + MARK.encode() + b" 0\n") == HeardEnd(0, None)


@pytest.mark.parametrize(
    "line",
    [
        f"{AT} overspan-end {MARK} 0\n",
        f"{AT} \036overspan-end {make_mark('inst-7-0', 'trainer', 0, 0, 1)} 0\n",
        f"{AT} \036overspan-end {MARK} 0",
        f"{AT} \036overspan-end {MARK} 0 and more\n",
        f"{AT} \036overspan-end {MARK} \n",
    ],
)
def test_what_only_looks_like_it(line: str) -> None:
    assert hear(line.encode()) is None


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_all_else_of_a_log_stays(before: bytes, after: bytes) -> None:
    assert leave_out(before + LINE.partition(b" ")[2] + after, MARK) == before + after
    assert leave_out(before + after, MARK) == before + after


def test_each_run_of_each_member_has_a_mark_of_its_own() -> None:
    keys = [("a-1-0", "t", 0, 0, 0), ("a-1-1", "t", 0, 0, 0), ("a-1-0", "u", 0, 0, 0)]
    keys += [("a-1-0", "t", 1, 0, 0), ("a-1-0", "t", 0, 1, 0), ("a-1-0", "t", 0, 0, 1)]
    assert len({make_mark(*key) for key in keys}) == len(keys)
