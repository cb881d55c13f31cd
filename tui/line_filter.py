"""The last thing that happens to a line before it is written: no control character, no colour, no character too much.

Texts are cleaned where they come in. This is the second fence, for every widget, Textual's own too: what a terminal
would obey is taken out of each line whatever wrote it.
"""

from __future__ import annotations

import unicodedata
from functools import lru_cache

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

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


class LineGuard(LineFilter):
    """Takes control characters out of every line; on request colours and what is not ASCII too."""

    def __init__(self, *, colours: bool = True, ascii_only: bool = False) -> None:
        super().__init__()
        self.colours = colours
        self.ascii_only = ascii_only

    def apply(self, segments: list[Segment], background: Color) -> list[Segment]:
        """The segments, each as wide as before."""
        del background
        clean = to_ascii if self.ascii_only else strip_controls
        if self.colours and all(segment.text.isprintable() for segment in segments) and not self.ascii_only:
            return segments
        return [
            segment
            if segment.control
            else Segment(clean(segment.text), segment.style if self.colours else take_colours(segment.style))
            for segment in segments
        ]


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


@lru_cache(1024)
def take_colours(style: Style | None) -> Style | None:
    """The style without its colours; bold, underlined and reversed stay, and what clicks and selections go by."""
    return style.without_color + Style.from_meta(style.meta) if style is not None else None
