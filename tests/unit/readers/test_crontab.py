"""Crontabs as scrontab(1) has them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.readers.crontab import MAX_ENTRIES, read_crontab

TEXT = """\
# a comment \\
MAILTO = me
A='b c'

#SCRON -t 5 # not read
#SCRON --comment "x y" \\
  -p debug
0 5 * * * /my/script a \\
   b
CRON_TZ=Europe/Berlin
@daily echo 50% "a#b"
"""


def test_entries_options_variables_and_lines() -> None:
    first, second = read_crontab(TEXT)
    assert (first.first_line, first.last_line) == (5, 9)
    assert first.options == ("-t", "5", "--comment", "x y", "-p", "debug")
    assert (first.schedule.text, first.command, first.name) == ("0 5 * * *", "/my/script a    b", "script")
    assert dict(first.variables) == dict(second.variables) == {"MAILTO": "me", "A": "b c"}
    assert first.script.startswith("#!/bin/sh\n") and first.script.endswith("\n/my/script a    b\n")
    # Options are for one entry, a time zone for all that follow.
    assert (second.options, second.schedule.text, second.schedule.timezone) == ((), "@daily", "Europe/Berlin")
    assert second.command == 'echo 50% "a#b"'


@pytest.mark.parametrize(
    ("text", "place", "why"),
    [
        ("\n61 * * * * x\n", "crontab:2:1", "'61' is no minute"),
        ("  0 5 * 13 *  x\n", "crontab:1:9", "'13' is no month"),
        ("  0 5 * * *\n", "crontab:1:3", "has no command"),
        ("#SCRON -t 1\n", "crontab:1", "options without an entry"),
        ("#SCRON -J 'a\n@daily x\n", "crontab:1:1", "Unmatched"),
        ("A='x\n", "crontab:1:1", "is not closed"),
        ("CRON_TZ=Moon\n", "crontab:1:1", "no time zone 'Moon'"),
        ("hello\n", "crontab:1:1", "is not a schedule"),
        ("@daily x\n" * (MAX_ENTRIES + 1), "crontab", "the limit is"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(text: str, place: str, why: str) -> None:
    with pytest.raises(InvalidRequest, match=why) as caught:
        read_crontab(text)
    assert str(caught.value.place) == place


def test_every_wrong_line_is_told() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_crontab("x\ny\n@daily z\n")
    assert "crontab:2:1" in caught.value.message


@given(st.text(alphabet="#SCRON=*/05 @daily'\"\\\n\tx", max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        entries = read_crontab(text)
    except InvalidRequest:
        return
    assert all(entry.command and entry.first_line <= entry.last_line for entry in entries)
