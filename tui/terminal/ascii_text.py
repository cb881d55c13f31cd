"""Texts in ASCII: what terminals without other characters get."""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len

from overspan.bridge.client.terminal_texts import UNSAFE

_BOXES = {
    **dict.fromkeys("─━═╌╍┄┅┈┉▔▁╴╶╸╺", "-"),
    **dict.fromkeys("│┃║╎╏┆┇┊┋▏▕▎▊▌▐╵╷╹╻", "|"),
    **dict.fromkeys("▸▶►▹", ">"),
    **dict.fromkeys("▾▼▽", "v"),
    **dict.fromkeys("▴▲△", "^"),
    **dict.fromkeys("█▇▆▅▉▊▋▓▒▄▀▜▛▙▟■⣿", "#"),
    **dict.fromkeys("░▂▃▖▗▘▝", "."),
    **dict.fromkeys("•●○◆◇·◉", "*"),
    **dict.fromkeys("✓✔", "+"),
    **dict.fromkeys("✗✘×", "x"),
    **dict.fromkeys("‘’′", "'"),
    **dict.fromkeys("“”″", '"'),
    **dict.fromkeys("–—−‐", "-"),
    **dict.fromkeys("◂◀◄←", "<"),
    "→": ">",
    "↑": "^",
    "↓": "v",
    "…": "~",
    "⏎": "<",
    "\u00a0": " ",
}


def strip_controls(text: str) -> str:
    """The text without what a terminal would obey, which has no width."""
    return text if text.isprintable() else UNSAFE.sub("", text)


@lru_cache(4096)
def to_ascii(text: str) -> str:
    """The text in ASCII, as wide as it was: lines and arrows by their likeness, letters without their accents."""
    text = strip_controls(text)
    return text if text.isascii() else "".join(map(_replace, text))


def _replace(character: str) -> str:
    if character.isascii():
        return character
    if character in _BOXES:
        return _BOXES[character]
    width = cell_len(character)
    if "\u2500" <= character <= "\u257f":
        return "+"
    if "\u2801" <= character <= "\u28ff":
        return "*"
    plain = unicodedata.normalize("NFKD", character)[0]
    return plain if plain.isascii() and width == 1 else "?" * width
