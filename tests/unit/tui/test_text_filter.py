"""Filters of lists without jobs, and the words that other places are told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.tui.places.text_filter import read_text_filter, spell_word, split_words

FIELDS = ("cluster", "node", "reason", "state")
LINE = {"cluster": "leo", "node": "n1", "reason": "bad fan", "state": "drained drain"}


@pytest.mark.parametrize(
    ("source", "holds"),
    [
        ("", True),
        ("fan", True),
        ("FAN leo", True),
        ("fan kube", False),
        ("!kube", True),
        ("!fan", False),
        ("state:drain", True),
        ("state:idle,drain", True),
        ("st:idle", False),
        ("state:", True),
        ("reason:fan$", True),
        ('reason:"bad fan"', True),
        ('"bad fan', True),
        ("!", True),
    ],
)
def test_words_match(source: str, holds: bool) -> None:
    read = read_text_filter(source, FIELDS)
    assert read.matches(LINE) is holds and read.trouble == ""


def test_what_cannot_be_read_is_told_and_the_rest_counts() -> None:
    read = read_text_filter("[ node:n2", FIELDS)
    assert "'[' is no regular expression" in read.trouble and not read.matches(LINE)
    assert "did you mean 'node'" in read_text_filter("noode:n1", FIELDS).trouble
    assert "fields: cluster, node" in read_text_filter("xyz:n1", FIELDS).trouble


@given(st.text(max_size=40))
def test_nothing_that_is_typed_breaks_it(source: str) -> None:
    read_text_filter(source, FIELDS).matches(LINE)


@given(st.text(min_size=1, max_size=20))
def test_a_spelled_name_is_one_word_that_matches_the_name(name: str) -> None:
    word = spell_word("node", name)
    assert list(split_words(word)) == [word]
    assert read_text_filter(word, FIELDS).matches({"node": name})


def test_a_spelled_name_matches_no_other_one() -> None:
    assert spell_word("node", "n1.lab") == r"node:n1\.lab"
    assert spell_word("name", "fit") == "name:^fit$"
