"""Instants of a schedule, with the days on which the clock is changed."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest

from overspan.bridge.controller.features.recurrence import Recurrence, local_zone
from overspan.bridge.model.schedule import Schedule

BERLIN = ZoneInfo("Europe/Berlin")
FORWARD, BACK = "2026-03-29", "2026-10-25"


def at(text: str, zone: ZoneInfo = BERLIN) -> float:
    return datetime.fromisoformat(text).replace(tzinfo=zone).timestamp()


def times(text: str, start: str, count: int) -> list[str]:
    """The next instants as Berlin's clock and offset show them; both ways to find them agree."""
    recurrence = Recurrence(Schedule(text, "Europe/Berlin"))
    found = list(islice(recurrence.follow(at(start)), count))
    one_by_one, last = [], at(start)
    for _ in range(count):
        following = recurrence.after(last)
        assert following is not None
        one_by_one.append(following)
        last = following
    assert one_by_one == found == sorted(set(found))
    return [datetime.fromtimestamp(moment, BERLIN).strftime("%d %H:%M %z") for moment in found]


def test_a_fixed_hour_that_does_not_exist_is_taken_later_once() -> None:
    assert times("30 2 * * *", f"{FORWARD}T00:00", 2) == ["29 03:30 +0200", "30 02:30 +0200"]
    assert times("30 2,3 * * *", f"{FORWARD}T00:00", 2) == ["29 03:30 +0200", "30 02:30 +0200"]


def test_every_hour_leaves_out_the_hour_that_does_not_exist() -> None:
    assert times("30 * * * *", f"{FORWARD}T01:00", 3) == ["29 01:30 +0100", "29 03:30 +0200", "29 04:30 +0200"]


def test_a_fixed_hour_that_comes_twice_runs_once() -> None:
    assert times("*/30 2 * * *", f"{BACK}T00:00", 3) == ["25 02:00 +0200", "25 02:30 +0200", "26 02:00 +0100"]


def test_every_hour_runs_in_both() -> None:
    assert times("0 * * * *", f"{BACK}T01:30", 3) == ["25 02:00 +0200", "25 02:00 +0100", "25 03:00 +0100"]


def test_every_minute_loses_and_doubles_none() -> None:
    for day in (FORWARD, BACK):
        recurrence = Recurrence(Schedule("* * * * *", "Europe/Berlin"))
        start = at(f"{day}T00:30")
        assert list(islice(recurrence.follow(start), 300)) == [start + 60 * k for k in range(1, 301)]


def test_days_of_month_and_week_are_either_or() -> None:
    found = times("0 0 13 * fri", "2026-10-31T12:00", 4)
    assert found == ["06 00:00 +0100", "13 00:00 +0100", "20 00:00 +0100", "27 00:00 +0100"]
    assert times("0 0 10 * fri", "2026-10-31T12:00", 3)[1] == "10 00:00 +0100"


def test_an_instant_itself_is_not_after_itself() -> None:
    recurrence = Recurrence(Schedule("0 3 * * *", "UTC"))
    three = datetime(2026, 1, 1, 3, tzinfo=UTC).timestamp()
    assert recurrence.after(three - 0.5) == three
    assert recurrence.after(three) == three + 86400


@pytest.mark.parametrize("name", ["Moon/Sea", "../etc/passwd", "", "a\0b"])
def test_a_zone_that_is_none_is_passed_over(name: str) -> None:
    assert local_zone(name) == local_zone()


def test_the_submitters_zone_counts() -> None:
    assert local_zone(":Asia/Tokyo") == "Asia/Tokyo"
