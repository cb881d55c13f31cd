"""Which lines of a pod's log are new."""

from __future__ import annotations

from overspan.adapters.kubernetes.logs.log_lines import LOST, Mark, since_time, take_new

A, B, C = "2026-11-21T22:10:37.000000001Z", "2026-11-21T22:10:37.5Z", "2026-11-21T22:10:39.25Z"


def text(*lines: tuple[str, str]) -> bytes:
    return "".join(f"{time} {line}\n" for time, line in lines).encode()


def test_all_is_new_at_first() -> None:
    fresh = take_new(text((A, "one"), (B, "two")), Mark(), final=False)
    assert fresh[:2] == (b"one\ntwo\n", Mark(B, 1))
    assert since_time(fresh.mark) == "2026-11-21T22:10:37Z"
    assert since_time(Mark("2026-11-21T22:10:37.5+01:00", 1)) == "2026-11-21T22:10:37+01:00"
    assert since_time(Mark()) == ""


def test_what_is_told_again_is_passed_over() -> None:
    data = text((A, "one"), (B, "two"), (C, "three"))
    assert take_new(data, Mark(B, 1), final=False)[:2] == (b"three\n", Mark(C, 1))
    assert take_new(data, Mark(C, 1), final=False)[:2] == (b"", Mark(C, 1))
    assert take_new(b"", Mark(C, 1), final=True)[:2] == (b"", Mark(C, 1))


def test_lines_of_one_time_are_counted() -> None:
    data = text((A, "one"), (A, "two"), (A, "three"))
    fresh = take_new(text((A, "one"), (A, "two")), Mark(), final=False)
    assert fresh.mark == Mark(A, 2)
    assert take_new(data, fresh.mark, final=False)[:2] == (b"three\n", Mark(A, 3))


def test_a_line_that_is_not_whole_waits_for_its_end() -> None:
    data = text((A, "one")) + f"{B} tw".encode()
    assert take_new(data, Mark(), final=False)[:2] == (b"one\n", Mark(A, 1))
    assert take_new(data, Mark(), final=True)[:2] == (b"one\ntw", Mark(B, 1))


def test_a_gap_is_told() -> None:
    fresh = take_new(text((C, "three")), Mark(A, 1), final=False)
    assert fresh[:2] == (LOST + b"three\n", Mark(C, 1))


def test_an_empty_line_is_a_line() -> None:
    assert take_new(text((A, ""), (B, "two")), Mark(), final=False).data == b"\ntwo\n"


def test_each_second_has_the_time_of_its_last_line() -> None:
    data = text((A, "one"), (B, "two"), (C, "three"))
    assert take_new(data, Mark(), final=False).times == ((1795299037.5, 8), (1795299039.25, 14))
    # What was lost has a line in its place.
    assert take_new(data[: len(data) - 1] + b"!\n", Mark("x", 1), final=False).times[-1] == (
        1795299039.25,
        15 + len(LOST),
    )
    assert take_new(b"no time\n", Mark(), final=False).times == ()
