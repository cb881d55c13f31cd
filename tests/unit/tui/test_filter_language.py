"""The filter language: words, their spelling and completion, and the filters that were kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.tui.filter_language import (
    FilterHistory,
    fields_of_texts,
    read_words,
    spell_word,
    split_words,
)

FIELDS = fields_of_texts(("cluster", "node", "reason", "state"))
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
    read = read_words(source, FIELDS)
    assert read.matches(LINE) is holds and read.trouble == ""


def test_what_cannot_be_read_is_told_and_the_rest_counts() -> None:
    read = read_words("[ node:n2", FIELDS)
    assert "'[' is not a regular expression" in read.trouble and not read.matches(LINE)
    assert "did you mean 'node'" in read_words("noode:n1", FIELDS).trouble
    assert "fields: cluster, node" in read_words("xyz:n1", FIELDS).trouble


@given(st.text(max_size=40))
def test_nothing_that_is_typed_breaks_it(source: str) -> None:
    read_words(source, FIELDS).matches(LINE)


@given(st.text(min_size=1, max_size=20))
def test_a_spelled_name_is_one_word_that_matches_the_name(name: str) -> None:
    word = spell_word("node", name)
    assert list(split_words(word)) == [word]
    assert read_words(word, FIELDS).matches({"node": name})


def test_a_spelled_name_matches_no_other_one() -> None:
    assert spell_word("node", "n1.lab") == r"node:n1\.lab"
    assert spell_word("name", "fit") == "name:^fit$"


def test_the_arrows_go_through_the_filters_that_were_kept() -> None:
    history = FilterHistory()
    assert history.older("typing") == "typing"
    for source in ("one", "two", "one", ""):
        history.add(source)
    assert history.older("typing") == "one"
    assert history.older("one") == "two"
    assert history.older("two") == "two"
    assert history.newer("two") == "one"
    assert history.newer("one") == "typing"
    assert history.newer("typing") == "typing"


def test_a_filter_that_is_opened_again_is_no_earlier_one() -> None:
    history = FilterHistory()
    history.add("one")
    history.add("two")
    assert history.older("two") == "one"
