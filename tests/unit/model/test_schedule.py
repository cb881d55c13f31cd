"""The times of crontab(5)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.schedule import WORDS, Missed, Overlap, Schedule, parse_cron, split_cron


def test_fields_are_lists_of_values() -> None:
    fields = parse_cron("*/20 8-10,20 1 jan,jun-AUG 5-7")
    assert fields.minutes == (0, 20, 40)
    assert fields.hours == (8, 9, 10, 20)
    assert fields.days == (1,)
    assert fields.months == (1, 6, 7, 8)
    assert fields.weekdays == (0, 5, 6)
    assert (fields.any_hour, fields.any_day, fields.any_weekday) == (False, False, False)


@pytest.mark.parametrize(
    ("text", "days"), [("sun", (0,)), ("0", (0,)), ("7", (0,)), ("fri-sun", (0, 5, 6)), ("mon", (1,))]
)
def test_weekdays_count_from_sunday(text: str, days: tuple[int, ...]) -> None:
    assert parse_cron(f"0 0 * * {text}").weekdays == days


def test_a_step_counts_from_the_beginning_of_its_range() -> None:
    assert parse_cron("10-40/15 * * * *").minutes == (10, 25, 40)


@pytest.mark.parametrize("word", WORDS)
def test_words_are_times(word: str) -> None:
    assert parse_cron(word) == parse_cron(WORDS[word]) == parse_cron(word.upper())


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "is not a schedule"),
        ("0 3 * *", "is not a schedule"),
        ("0 3 * * mon x", "is not a schedule"),
        ("@reboot", "words are @yearly"),
        ("60 * * * *", "it must be from 0 to 59"),
        ("* * 0 * *", "it must be from 1 to 31"),
        ("* * * foo *", "is no month"),
        ("* * * * mon-", "is no value of the day of week"),
        ("*-3 * * * *", "is no value of the minute"),
        ("5/2 * * * *", "a step needs"),
        ("*/0 * * * *", "the step must be"),
        ("22-2 * * * *", "runs backwards"),
        ("0 0 31 2,4 *", "never comes"),
        ("\N{SUPERSCRIPT TWO} * * * *", "is no value"),
    ],
)
def test_what_is_wrong_is_told(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_cron(text)


@given(st.text(alphabet="0123456789*/-,@ monjadily", max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        fields = parse_cron(text)
    except ValueError:
        return
    assert all(fields[:5])


def test_a_line_is_split_into_times_and_command() -> None:
    assert split_cron("0 5 * * 1   run  a 'b c'") == ("0 5 * * 1", "run  a 'b c'")
    assert split_cron("@daily echo  x") == ("@daily", "echo  x")
    assert split_cron("0 5 * * 1") == ("0 5 * * 1", "")


def test_documents() -> None:
    schedule = Schedule("@daily", "UTC", Missed.ALL, Overlap.REPLACE, 3, 17.0)
    assert decode(Schedule, encode(schedule)) == schedule
    assert encode(Schedule("@daily")) == {"text": "@daily"}
