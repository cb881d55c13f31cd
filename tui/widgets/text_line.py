"""A line of the screen made of styled texts, painted anew only when it reads otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip
from textual.widget import Widget

from overspan.tui.queue.styled_text import StyledText

WriteLine = Callable[[int], Sequence[StyledText]]
"""Writes the line in so many cells."""


class TextLine(Widget):
    """One line; `show` takes what writes it."""

    DEFAULT_CSS = """
    TextLine { height: 1; }
    TextLine .text-line--dim { color: $text-muted; }
    TextLine .text-line--good { color: $text-success; }
    TextLine .text-line--busy { color: $text-primary; }
    TextLine .text-line--waiting { color: $text-warning; }
    TextLine .text-line--bad { color: $text-error; text-style: bold; }
    TextLine .text-line--ended { color: $text-disabled; }
    TextLine .text-line--accent { color: $text-accent; }
    TextLine .text-line--chosen { color: $text-accent; text-style: bold; }
    TextLine:ansi .text-line--dim, TextLine:ansi .text-line--ended { color: $foreground; text-style: dim; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "text-line--" + name for name in ("dim", "good", "busy", "waiting", "bad", "ended", "accent", "chosen", "text")
    }

    def __init__(self, **options: str) -> None:
        super().__init__(**options)  # type: ignore[arg-type]
        self._write: WriteLine = lambda width: ()
        self._parts: Sequence[StyledText] = ()

    @property
    def text(self) -> str:
        """What it reads."""
        return "".join(part.text for part in self._parts)

    def show(self, write: WriteLine) -> None:
        """Show another text."""
        self._write = write
        parts = tuple(write(self.size.width))
        if parts != self._parts:
            self._parts = parts
            self.refresh()

    def on_resize(self) -> None:
        """Write it for another width."""
        self.show(self._write)

    def render_line(self, y: int) -> Strip:
        """The texts, and blanks behind them."""
        width = self.size.width
        if y:
            return Strip.blank(width, self._style("text"))
        segments = [Segment(part.text, self._style(part.style or "text") + _link(part.action)) for part in self._parts]
        return Strip(segments).adjust_cell_length(width, self._style("text"))

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style("text-line--" + name)


def _link(action: str) -> Style:
    return Style.from_meta({"@click": action}) if action else Style.null()
