"""Patterns of checkpoint names: what they match, and what is refused."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from overspan.bridge.model.checkpoints.patterns import number_of, parse_pattern


@pytest.mark.parametrize(
    ("pattern", "name", "fields"),
    [
        ("step_{step:int}", "step_0100", {"step": 100}),
        ("step_{step:int}", "step_x", None),
        ("step_{step:int}", "step_1.tmp", None),
        ("step_{step:int}", "step_", None),
        ("{run}-{loss:float}.pt", "a-b-0.25.pt", {"run": "a-b", "loss": 0.25}),
        ("{run}-{loss:float}.pt", "a-1e-3.pt", {"run": "a", "loss": 0.001}),
        ("ckpt*", "ckpt.orbax-tmp", {}),
        ("*", ".hidden", None),
        ("?.pt", "a.pt", {}),
        ("?.pt", "..pt", None),
        ("a{{b}}", "a{b}", {}),
        ("run_*/step_{step:int}", "run_7/step_3", {"step": 3}),
        ("run_*/step_{step:int}", "step_3", None),
        ("a.b", "axb", None),
        ("step_{step:int}", "step_1/x", None),
    ],
)
def test_names(pattern: str, name: str, fields: dict[str, object] | None) -> None:
    assert parse_pattern(pattern).match(name) == fields


@pytest.mark.parametrize(
    ("pattern", "words"),
    [
        ("", "empty"),
        ("/a", "can never match"),
        ("a//b", "can never match"),
        ("../a", "no checkpoint is called '..'"),
        ("a/b/c/d/e", "5 folders deep"),
        ("x" * 256, "at most 255 bytes"),
        ("{step", "not closed"),
        ("step}", "not closed"),
        ("{}", "is no field"),
        ("{a b}", "is no field"),
        ("{step:number}", "the types are int, float, str"),
        ("{a}{a}", "twice"),
        ("{checkpoint}", "another name"),
        ("a\0b", "NUL"),
    ],
)
def test_what_can_never_match_is_refused(pattern: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_pattern(pattern)


def test_the_number_is_the_step_or_the_only_one() -> None:
    assert number_of({"epoch": 2, "step": 30}) == 30
    assert number_of({"epoch": 2, "name": "a"}) == 2
    assert number_of({"epoch": 2, "loss": 0.5}) is None
    assert number_of({"step": "last"}) is None


@given(st.text(max_size=60))
def test_any_text_is_a_pattern_or_refused(text: str) -> None:
    try:
        pattern = parse_pattern(text)
    except ValueError:
        return
    pattern.match(text)


@given(st.integers(min_value=0, max_value=10**18))
def test_a_number_comes_back(step: int) -> None:
    assert parse_pattern("step_{step:int}").match(f"step_{step}") == {"step": step}
