"""Which words of a filter are asked of the daemon."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tui.fake_source import NOW

from overspan.bridge.client.records import JobFilter
from overspan.tui.history.words import read_history_filter


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        ("", JobFilter()),
        ("fit", JobFilter()),
        ("since:2d", JobFilter(since=NOW - 2 * 86400)),
        ("since:3h until:1h", JobFilter(since=NOW - 3 * 3600, until=NOW - 3600)),
        ("user:ana,bo", JobFilter(users=("ana", "bo"))),
        ("u:ana user:bo", JobFilter(users=("ana",))),
        ("user:a.*", JobFilter()),
        ("!user:ana", JobFilter()),
        ("cluster:leo part:gpu", JobFilter(clusters=("leo",), partitions=("gpu",))),
        ("account:lab qos:high,low", JobFilter(accounts=("lab",), qos=("high", "low"))),
        ("state:f,TO", JobFilter(states=("FAILED", "TIMEOUT"))),
        ("state:comp", JobFilter(states=("COMPLETED", "COMPLETING"))),
        ("state:wrong", JobFilter()),
        ("name:fit", JobFilter()),
        ("name:^fit$", JobFilter(names=("fit",))),
        (r"name:^fit\.py$", JobFilter(names=("fit.py",))),
    ],
)
def test_plain_values_are_asked_of_the_daemon(source: str, wanted: JobFilter) -> None:
    found = read_history_filter(source, NOW)
    assert {
        name: set(value) if isinstance(value, tuple) else value for name, value in found.wanted._asdict().items()
    } == {name: set(value) if isinstance(value, tuple) else value for name, value in wanted._asdict().items()}
    assert found.shown.source == source


def test_a_date_is_a_time_too() -> None:
    found = read_history_filter("since:2026-11-20", NOW)
    assert found.wanted.since == time.mktime((2026, 11, 20, 0, 0, 0, 0, 0, -1))


def test_a_time_that_cannot_be_read_is_told_and_the_rest_counts() -> None:
    found = read_history_filter("since:soon user:ana [", NOW)
    assert "since:soon" in found.shown.trouble and "[" in found.shown.trouble
    assert found.wanted == JobFilter(users=("ana",))


@given(st.text(max_size=40))
def test_nothing_that_is_typed_breaks_it(source: str) -> None:
    assert read_history_filter(source, NOW).shown.source == source
