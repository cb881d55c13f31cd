"""Lines of schedules."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.tui.fake_source import NOW
from tests.unit.tui.labs import HOSTILE, schedule

from overspan.bridge.client.terminal_texts import UNSAFE
from overspan.tui.filter_language import fields_of_texts, read_words
from overspan.tui.history.words import read_history_filter
from overspan.tui.schedules.lines import (
    FIELDS,
    ScheduleLine,
    describe,
    describe_counts,
    find_jobs,
    format_span,
    make_columns,
    make_lines,
)

ALL = read_words("", fields_of_texts(FIELDS))


def line(name: str = "nightly", **more: Any) -> ScheduleLine:
    return ScheduleLine(3, schedule(3, name, **more))


def cells(one: ScheduleLine, width: int = 160) -> dict[str, str]:
    return {column.name: column.cell(one, NOW).text for column in make_columns(width)}


def test_a_schedule_tells_when_it_is_due_and_what_its_last_run_became() -> None:
    found = cells(line(), 80)
    assert (found["id"], found["next"], found["last"], found["job"], found["state"]) == (
        "c3",
        "in 2 h 1 m",
        "22 h ago",
        "812",
        "CD",
    )
    assert cells(line(paused=True))["next"] == "paused"
    assert cells(line(next_due=None))["next"] == "never" and cells(line(next_due=NOW - 1))["next"].startswith("now")


def test_what_went_wrong_lately_comes_before_counts() -> None:
    missed: dict[str, Any] = {"missed_runs": 2, "owed_runs": 1, "skipped_runs": 1, "refused_runs": 3}
    news = line(**missed, message="2 runs\nwere missed", message_at=NOW - 100)
    assert describe_counts(news) == "2 missed (1 owed), 1 skipped, 3 refused"
    assert cells(news)["note"].startswith("1 m ago: 2 runs were missed; 2 missed")
    assert cells(line(**missed, message="old", message_at=NOW - 90000))["note"].endswith("refused; 1 d 1 h ago: old")
    assert cells(line())["note"] == ""


def test_all_of_it_is_told_below_the_table() -> None:
    assert "0 3 * * mon-fri Europe/Berlin; next at 20" in describe(line())
    assert "missed: once, overlap: skip" in describe(line())
    assert "; paused; " in describe(line(paused=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(-5, "0 s"), (59, "59 s"), (60, "1 m"), (3600, "1 h"), (3660, "1 h 1 m"), (90000, "1 d 1 h"), (86460, "1 d")],
)
def test_spans(seconds: float, text: str) -> None:
    assert format_span(seconds) == text


def test_the_one_that_is_due_first_comes_first_and_paused_ones_last() -> None:
    every = [
        schedule(1, "c", next_due=NOW + 9, runs=1),
        schedule(2, "b", paused=True),
        schedule(3, "a", next_due=NOW + 5, last_run_at=NOW),
    ]
    assert [each.key for each in make_lines(every, ALL, "next")] == [3, 1, 2]
    assert [each.key for each in make_lines(every, ALL, "name")] == [3, 2, 1]
    assert [each.key for each in make_lines(every, ALL, "id", reverse=True)] == [3, 2, 1]
    assert [each.key for each in make_lines(every, ALL, "last")] == [3, 1, 2]
    assert [each.key for each in make_lines(every, read_words("state:paused", fields_of_texts(FIELDS)), "id")] == [2]


def test_the_jobs_of_a_schedule_are_found_by_name_and_user() -> None:
    assert find_jobs(line()) == "name:^nightly$ user:ana"
    wanted = read_history_filter(find_jobs(line()), NOW).wanted
    assert (wanted.names, wanted.users) == (("nightly",), ("ana",))
    # The name of each job has its own id.
    assert find_jobs(line(name="n-{id}.x")) == r"name:^n-\d+\.x$ user:ana"
    assert read_history_filter(find_jobs(line(name="n-{id}.x")), NOW).wanted.names == ()


def test_hostile_schedules_are_clean() -> None:
    texts = dict.fromkeys(("schedule", "timezone", "last_state", "message", "user", "missed", "overlap"), HOSTILE)
    nasty = line(name=HOSTILE, **texts, message_at=NOW)
    assert not any(UNSAFE.search(text) for text in cells(nasty).values())
    read_history_filter(find_jobs(nasty), NOW)
