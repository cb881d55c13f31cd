"""Themes: our own dark and light one, and which one a terminal gets.

States are told by a letter first and by a colour besides, so every theme keeps the meaning, and none at all does.
"""

from __future__ import annotations

from collections.abc import Iterable

from textual.theme import BUILTIN_THEMES, Theme

from overspan.bridge.validation.diagnostics import nearest
from overspan.tui.terminal.terminal import Colours, TerminalTraits

DARK = Theme(
    name="overspan-dark",
    primary="#6aa9e9",
    secondary="#b48ede",
    accent="#7cc5d9",
    success="#86c28b",
    warning="#d9b36c",
    error="#e57b7b",
    foreground="#ccd4de",
    background="#10141a",
    surface="#161c24",
    panel="#1f2732",
    dark=True,
    variables={
        "text-primary": "#8cbcf0",
        "text-secondary": "#c9aeea",
        "text-accent": "#84c9dc",
        "text-success": "#86c28b",
        "text-warning": "#dfbb78",
        "text-error": "#f19595",
        "text-muted": "#a3aebd",
        "text-disabled": "#98a3b1",
        "warning-muted": "#352e20",
        "block-cursor-background": "#1e3a5a",
        "block-cursor-foreground": "#f2f6fa",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#1f2a36",
        "block-cursor-blurred-foreground": "#ccd4de",
        "border": "#3a4657",
        "border-blurred": "#28313d",
        "footer-background": "#161c24",
        "footer-foreground": "#8d99a8",
        "footer-key-foreground": "#6aa9e9",
        "input-selection-background": "#6aa9e9 35%",
        "scrollbar": "#39465a",
        "scrollbar-hover": "#4c5d77",
        "scrollbar-active": "#6aa9e9",
        "scrollbar-background": "#10141a",
        "scrollbar-background-hover": "#10141a",
        "scrollbar-background-active": "#10141a",
        "scrollbar-corner-color": "#10141a",
    },
)
LIGHT = Theme(
    name="overspan-light",
    primary="#1f62ad",
    secondary="#7a3f9d",
    accent="#116a80",
    success="#22763a",
    warning="#8a5a00",
    error="#b3261e",
    foreground="#232a33",
    background="#fbfcfd",
    surface="#f1f4f7",
    panel="#e3e9ef",
    dark=False,
    variables={
        "text-primary": "#1f62ad",
        "text-secondary": "#7a3f9d",
        "text-accent": "#116a80",
        "text-success": "#1d6f36",
        "text-warning": "#855600",
        "text-error": "#b3261e",
        "text-muted": "#525e6a",
        "text-disabled": "#5a6571",
        "warning-muted": "#f7e9c6",
        "block-cursor-background": "#d3e5f8",
        "block-cursor-foreground": "#10161d",
        "block-cursor-text-style": "none",
        "block-cursor-blurred-background": "#e3e9ef",
        "block-cursor-blurred-foreground": "#232a33",
        "border": "#b6c2cf",
        "border-blurred": "#d5dde5",
        "footer-background": "#f1f4f7",
        "footer-foreground": "#5a6775",
        "footer-key-foreground": "#1f62ad",
        "input-selection-background": "#1f62ad 25%",
        "scrollbar": "#c0ccd8",
        "scrollbar-hover": "#9fb0c2",
        "scrollbar-active": "#1f62ad",
        "scrollbar-background": "#fbfcfd",
        "scrollbar-background-hover": "#fbfcfd",
        "scrollbar-background-active": "#fbfcfd",
        "scrollbar-corner-color": "#fbfcfd",
    },
)
TERMINAL = Theme(
    name="terminal",
    ansi=True,
    primary="ansi_bright_blue",
    secondary="ansi_magenta",
    accent="ansi_cyan",
    success="ansi_green",
    warning="ansi_yellow",
    error="ansi_red",
    foreground="ansi_default",
    background="ansi_default",
    surface="ansi_default",
    panel="ansi_default",
    boost="ansi_default",
    dark=True,
    variables=BUILTIN_THEMES["ansi-dark"].variables
    | {
        "ansi-background": "ansi_default",
        "ansi-foreground": "ansi_default",
        # Reverse is readable with any sixteen colours.
        "block-cursor-background": "ansi_default",
        "block-cursor-foreground": "ansi_default",
        "block-cursor-text-style": "reverse",
        "border": "ansi_bright_black",
        "border-blurred": "ansi_bright_black",
        "footer-key-foreground": "ansi_bright_blue",
        "input-cursor-background": "ansi_default",
        "input-cursor-foreground": "ansi_default",
        "input-cursor-text-style": "reverse",
        "scrollbar": "ansi_bright_black",
        "scrollbar-hover": "ansi_bright_black",
        "scrollbar-active": "ansi_bright_blue",
        "scrollbar-background": "ansi_default",
        "scrollbar-background-hover": "ansi_default",
        "scrollbar-background-active": "ansi_default",
    },
)
OWN = (DARK, LIGHT, TERMINAL)
NAMES = (*(theme.name for theme in OWN), *sorted(BUILTIN_THEMES))
"""What `--theme`, `top.theme` and `:theme` take."""
SHORT = {"dark": DARK.name, "light": LIGHT.name, "ansi": TERMINAL.name}


def find_theme(wanted: str, traits: TerminalTraits) -> str:
    """The theme of a terminal: the wanted one where it has the colours for it, else its own sixteen."""
    name = SHORT.get(wanted, wanted)
    if traits.colours is not Colours.MANY:
        return name if name in _list_ansi() else TERMINAL.name
    return name if name in NAMES else (LIGHT if traits.light else DARK).name


def check_theme(wanted: str) -> str:
    """What is wrong with a theme's name, in one sentence; nothing where there is one of this name."""
    if SHORT.get(wanted, wanted) in NAMES:
        return ""
    return f"there is no theme {wanted!r}{nearest(wanted, (*NAMES, *SHORT))}"


def _list_ansi() -> Iterable[str]:
    return [theme.name for theme in (*OWN, *BUILTIN_THEMES.values()) if theme.ansi]
