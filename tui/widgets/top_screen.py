"""A screen whose widgets are told of every change of their sizes.

Textual compares a new layout with the last one that was computed, and computes one also where code asks where a
widget is, as the mouse does: what changed between the two is told to no widget. A list would keep the columns of its
former width.
"""

from __future__ import annotations

from typing import Any, TypeVar

from textual._compositor import Compositor, ReflowResult
from textual.geometry import Size
from textual.screen import Screen
from textual.widget import Widget

T = TypeVar("T")


class NotifiedLayout(Compositor):
    """Compares each layout with the last one that the widgets were told of."""

    def __init__(self) -> None:
        super().__init__()
        self._told: dict[Widget, Size] = {}

    def reflow(self, parent: Widget, size: Size) -> ReflowResult:
        """Arrange everything; tells what is hidden, shown and of another size since the last time."""
        result = super().reflow(parent, size)
        before, self._told = self._told, {widget: place.region.size for widget, place in self._full_map.items()}
        shown = self._told.keys() - before.keys()
        resized = {widget for widget in self._told.keys() - shown if self._told[widget] != before[widget]}
        return result._replace(shown=shown, resized=resized)


class TopScreen(Screen[T]):
    """A screen of the application; dialogs, whose layout the terminal's size alone changes, are Textual's own."""

    def __init__(self, *words: Any, **named: Any) -> None:
        super().__init__(*words, **named)
        self._compositor = NotifiedLayout()
