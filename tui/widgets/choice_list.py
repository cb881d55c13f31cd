"""A list to choose from, whose chosen line is seen in every theme."""

from __future__ import annotations

from textual.style import Style
from textual.widgets import OptionList


class ChoiceList(OptionList):
    """An OptionList that reverses what the style sheet wants reversed: Textual 8.2 drops that, and without colours
    nothing else tells which line is chosen."""

    def get_visual_style(self, *component_classes: str, partial: bool = False) -> Style:
        """The style of these classes."""
        style = super().get_visual_style(*component_classes, partial=partial)
        wanted = any(self.get_component_styles(name).text_style.reverse for name in component_classes)
        return style + Style(reverse=True) if wanted else style
