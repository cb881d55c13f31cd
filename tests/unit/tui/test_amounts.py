"""Amounts and errors in words."""

from __future__ import annotations

import pytest

from overspan.bridge.model.errors import NotFound
from overspan.tui.amounts import count, format_mebibytes
from overspan.tui.daemon.error_words import tell_error, word_error


@pytest.mark.parametrize(
    ("amount", "words"),
    [(0, "0 MiB"), (900, "900 MiB"), (1024, "1 GiB"), (1536, "1.5 GiB"), (524_288, "512 GiB"), (2 << 20, "2 TiB")],
)
def test_memory_is_told_in_the_unit_that_suits_it(amount: float, words: str) -> None:
    assert format_mebibytes(amount) == words


def test_no_more_is_told_than_there_is() -> None:
    assert format_mebibytes(1023.99 * 1024) == "1023.9 GiB"


def test_one_is_no_plural() -> None:
    assert [count(1, "node"), count(0.5, "GPU"), count(0, "CPU")] == ["1 node", "0.5 GPUs", "0 CPUs"]


def test_an_error_says_what_to_do() -> None:
    told = tell_error(NotFound("no job\x1b[2J 7", remedy="`span squeue` lists them"))
    assert told.endswith("7; `span squeue` lists them") and "\x1b" not in told
    assert word_error("a", "", " b ") == "a; b"
