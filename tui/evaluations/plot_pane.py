"""The plot of the scores of the watch under the cursor, painted anew only where it reads otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import BindingType
from textual.geometry import Size
from textual.message import Message
from textual.strip import Strip
from textual.widget import Widget

from overspan.tui.evaluations.plot import ScorePlot, draw_plot
from overspan.tui.keyboard.keys import bind
from overspan.tui.queue.styled_text import StyledText

NOTHING = ScorePlot("")
_MOVES = ("move(-1)", "move(1)")


class PlotPane(Widget, can_focus=True, inherit_bindings=False):
    """The plot; `show` takes another one. With the focus on it, the keys of the list move the list's cursor."""

    DEFAULT_CSS = """
    PlotPane { height: 8; padding: 0 1; background: $background; border-top: hkey $panel; }
    PlotPane.-maximized { width: 100%; }
    PlotPane .plot--title { color: $foreground; text-style: bold; }
    PlotPane .plot--dim { color: $text-muted; }
    PlotPane .plot--good { color: $text-success; text-style: bold; }
    PlotPane .plot--busy { color: $text-primary; }
    PlotPane .plot--bad { color: $text-error; text-style: bold; }
    PlotPane .plot--accent { color: $text-accent; }
    PlotPane .plot--chosen { color: $text-warning; text-style: bold; }
    PlotPane .plot--text { color: $foreground; }
    PlotPane:ansi .plot--dim { color: $foreground; text-style: dim; }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        "plot--" + name for name in ("title", "dim", "good", "busy", "bad", "accent", "chosen", "text")
    }

    BINDINGS: ClassVar[list[BindingType]] = [each for each in bind("list") if each.action in _MOVES]

    class Steered(Message):
        """Another evaluation is wanted: so many lines away."""

        def __init__(self, by: int) -> None:
            self.by = by
            super().__init__()

    def __init__(self, ascii_only: bool = False) -> None:
        super().__init__()
        self._ascii = ascii_only
        self._plot = NOTHING
        self._lines: Sequence[Sequence[StyledText]] = ()
        self._drawn = (NOTHING, Size())
        """Of what, and in which size, the lines are."""

    @property
    def text(self) -> str:
        """What it reads."""
        return "\n".join("".join(part.text for part in line).rstrip() for line in self._draw())

    @property
    def allow_maximize(self) -> bool:
        """Yes."""
        return True

    def action_move(self, by: int) -> None:
        """Look at another evaluation."""
        self.post_message(self.Steered(by))

    def show(self, plot: ScorePlot) -> None:
        """Show another plot."""
        if plot != self._plot:
            self._plot = plot
            self.refresh()

    def _draw(self) -> Sequence[Sequence[StyledText]]:
        """The lines, drawn again where plot or size are others."""
        wanted = (self._plot, self.content_size)
        if wanted != self._drawn:
            width, height = self.content_size
            self._drawn = wanted
            self._lines = draw_plot(self._plot, width, height, self._ascii) if self._plot != NOTHING else []
        return self._lines

    def render_line(self, y: int) -> Strip:
        lines = self._draw()
        parts = lines[y] if y < len(lines) else ()
        segments = [Segment(part.text, self._style(part.style or "text")) for part in parts]
        return Strip(segments).adjust_cell_length(self.content_size.width, self._style("text"))

    def _style(self, name: str) -> Style:
        return self.get_component_rich_style("plot--" + name)
