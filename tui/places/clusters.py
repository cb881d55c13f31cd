"""The clusters: do they answer, since when not, and what is wrong."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from overspan.tui.places.place import Place


class ClustersPlace(Place):
    """The clusters: do they answer, since when not, and what is wrong."""

    name_of_place = "clusters"

    def __init__(self) -> None:
        super().__init__(id="place-clusters")

    def compose(self) -> ComposeResult:
        yield Static("clusters")
