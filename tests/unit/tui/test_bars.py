"""Bars of what is in use."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from overspan.tui.widgets.bars import draw_bar, style_use


@pytest.mark.parametrize(
    ("used", "total", "bar", "plain"),
    [
        (0, 8, "░░░░", "...."),
        (8, 8, "████", "####"),
        (4, 8, "██░░", "##.."),
        (5, 8, "██▌░", "##.."),
        (0.001, 8, "▏░░░", "#..."),
        (7.999, 8, "███▉", "###."),
        (99, 8, "████", "####"),
        (-1, 8, "░░░░", "...."),
        (1, 0, "", ""),
    ],
)
def test_a_bar_is_as_full_as_what_is_in_use(used: float, total: float, bar: str, plain: str) -> None:
    assert draw_bar(used, total, 4) == bar
    assert draw_bar(used, total, 4, ascii_only=True) == plain


@given(st.floats(0, 1e6), st.floats(0.001, 1e6), st.integers(1, 40), st.booleans())
def test_a_bar_has_its_width_whatever_is_in_use(used: float, total: float, width: int, ascii_only: bool) -> None:
    bar = draw_bar(used, total, width, ascii_only)
    assert cell_len(bar) == width
    assert bar.isascii() or not ascii_only


def test_the_colour_tells_what_is_nearly_full() -> None:
    assert [style_use(used, 10) for used in (0, 1, 8.9, 9, 10)] == ["dim", "good", "good", "waiting", "waiting"]
    assert style_use(1, 0) == "dim"
