"""Nodes and partitions of all clusters, with what of them is in use."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.widgets import Static

from overspan.tui.places.place import Place


class NodesPlace(Place):
    """Nodes and partitions of all clusters, with what of them is in use."""

    name_of_place = "nodes"

    def __init__(self) -> None:
        super().__init__(id="place-nodes")

    def compose(self) -> ComposeResult:
        yield Static("nodes")
