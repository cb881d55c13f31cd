"""The last thing that happens to a line before it is written: no control character, no colour, no character too much.

Texts are cleaned where they come in. This is the second fence, for every widget, Textual's own too: what a terminal
would obey is taken out of each line.
"""

from __future__ import annotations

from functools import lru_cache

from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.filter import LineFilter

from overspan.tui.terminal.ascii_text import strip_controls, to_ascii


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


@lru_cache(1024)
def take_colours(style: Style | None) -> Style | None:
    """The style without its colours; bold, underlined and reversed stay, and what clicks and selections go by."""
    return style.without_color + Style.from_meta(style.meta) if style is not None else None
