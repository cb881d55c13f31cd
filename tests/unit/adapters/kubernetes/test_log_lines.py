"""Which lines of a pod's log are new."""

from __future__ import annotations

from overspan.adapters.kubernetes.logs.log_lines import LOST, LogPosition, since_time, take_new

A, B, C = "2026-11-21T22:10:37.000000001Z", "2026-11-21T22:10:37.5Z", "2026-11-21T22:10:39.25Z"


def text(*lines: tuple[str, str]) -> bytes:
    return "".join(f"{time} {line}\n" for time, line in lines).encode()


def test_all_is_new_at_first() -> None:
    fresh = take_new(text((A, "one"), (B, "two")), LogPosition(), final=False)
    assert fresh[:2] == (b"one\ntwo\n", LogPosition(B, 1))
    assert since_time(fresh.position) == "2026-11-21T22:10:36Z"
    assert since_time(LogPosition("2026-11-21T22:10:37.5+01:00", 1)) == "2026-11-21T22:10:36+01:00"
    assert since_time(LogPosition()) == ""


def test_what_is_told_again_is_passed_over() -> None:
    data = text((A, "one"), (B, "two"), (C, "three"))
    assert take_new(data, LogPosition(B, 1), final=False)[:2] == (b"three\n", LogPosition(C, 1))
    assert take_new(data, LogPosition(C, 1), final=False)[:2] == (b"", LogPosition(C, 1))
    assert take_new(b"", LogPosition(C, 1), final=True)[:2] == (b"", LogPosition(C, 1))


def test_lines_of_one_time_are_counted() -> None:
    data = text((A, "one"), (A, "two"), (A, "three"))
    fresh = take_new(text((A, "one"), (A, "two")), LogPosition(), final=False)
    assert fresh.position == LogPosition(A, 2)
    assert take_new(data, fresh.position, final=False)[:2] == (b"three\n", LogPosition(A, 3))


def test_a_line_that_is_not_whole_waits_for_its_end() -> None:
    data = text((A, "one")) + f"{B} tw".encode()
    assert take_new(data, LogPosition(), final=False)[:2] == (b"one\n", LogPosition(A, 1))
    assert take_new(data, LogPosition(), final=True)[:2] == (b"one\ntw", LogPosition(B, 1))


def test_a_gap_is_told() -> None:
    fresh = take_new(text((C, "three")), LogPosition(A, 1), final=False)
    assert fresh[:2] == (LOST + b"three\n", LogPosition(C, 1))


def test_an_empty_line_is_a_line() -> None:
    assert take_new(text((A, ""), (B, "two")), LogPosition(), final=False).data == b"\ntwo\n"


def test_each_second_has_the_time_of_its_last_line() -> None:
    data = text((A, "one"), (B, "two"), (C, "three"))
    assert take_new(data, LogPosition(), final=False).times == ((1795299037.5, 8), (1795299039.25, 14))
    # What was lost has a line in its place.
    assert take_new(data[: len(data) - 1] + b"!\n", LogPosition("x", 1), final=False).times[-1] == (
        1795299039.25,
        15 + len(LOST),
    )
    assert take_new(b"no time\n", LogPosition(), final=False).times == ()


def test_a_line_behind_one_with_a_later_time_is_new() -> None:
    """Output and error are copied each by itself: the question must reach back over the second's beginning."""
    late = "2026-11-21T22:10:38.999Z"
    position = take_new(text((A, "one"), (C, "error")), LogPosition(), final=False).position
    assert since_time(position)[:19] <= late
    data = text((A, "one"), (C, "error"), (late, "output"))
    assert take_new(data, position, final=False)[:2] == (b"output\n", LogPosition(late, 1))
