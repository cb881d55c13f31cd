"""What is written in the colours of a theme can be read: the ratio of WCAG between text and ground is 4.5 at least."""

from __future__ import annotations

import pytest
from textual.color import Color
from textual.theme import Theme

from overspan.tui.terminal.themes import DARK, LIGHT

LEAST = 4.5
TEXTS = ("accent", "disabled", "error", "muted", "primary", "secondary", "success", "warning")
"""The variables `text-...` that states, titles and notes are written in; `disabled` is what has ended."""


def find_luminance(color: Color) -> float:
    """The relative luminance of WCAG 2."""
    parts = [value / 255 for value in color.rgb]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def find_contrast(text: str, ground: str) -> float:
    """The ratio of two colours, 1 to 21."""
    low, high = sorted(find_luminance(Color.parse(color)) for color in (text, ground))
    return (high + 0.05) / (low + 0.05)


def list_grounds(theme: Theme) -> dict[str, str]:
    """What lines of tables stand on, and the frame."""
    chosen = theme.variables["block-cursor-background"]
    own = {"background": theme.background or "", "surface": theme.surface or "", "cursor": chosen}
    return {**own, "marked": theme.variables["warning-muted"], "panel": theme.panel or ""}


def test_the_ratio_is_that_of_wcag() -> None:
    assert find_contrast("#ffffff", "#000000") == pytest.approx(21)
    assert find_contrast("#767676", "#ffffff") == pytest.approx(4.54, abs=0.01)


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_every_text_can_be_read_on_every_ground(theme: Theme) -> None:
    texts = {name: theme.variables[f"text-{name}"] for name in TEXTS} | {"foreground": theme.foreground or ""}
    found = {
        f"{name} on {ground}": round(find_contrast(color, behind), 2)
        for name, color in texts.items()
        for ground, behind in list_grounds(theme).items()
    }
    assert {pair: ratio for pair, ratio in found.items() if ratio < LEAST} == {}


@pytest.mark.parametrize("theme", [DARK, LIGHT], ids=lambda theme: theme.name)
def test_the_line_of_hints_can_be_read(theme: Theme) -> None:
    for name in ("footer-foreground", "footer-key-foreground"):
        assert find_contrast(theme.variables[name], theme.variables["footer-background"]) >= LEAST, name
