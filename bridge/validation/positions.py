"""Positions: where each key and value of a document stands, also where several files say it together."""

from __future__ import annotations

from typing import NamedTuple

from overspan.bridge.model.errors import Place
from overspan.bridge.validation.yaml_nodes import Table, has_path, key_place, place_in

Path = tuple[str | int, ...]
"""Keys and indices from the top of a document to one of its values."""


class Positions(NamedTuple):
    """The files that a document was merged from, the one that counts most first. Without files nothing has a place."""

    files: tuple[Table, ...] = ()
    base: Path = ()
    """Where in the files the document is."""

    def key(self, path: Path) -> Place | None:
        """The place of the key at a path, in the first file that has it; else of the nearest ancestor."""
        file = self._find(path)
        return key_place(file, *self.base, *path) if file else None

    def value(self, path: Path) -> Place | None:
        """The place of the value at a path, by the same rule."""
        file = self._find(path)
        return place_in(file, *self.base, *path) if file else None

    def below(self, path: Path) -> Positions:
        """The positions of the part at a path; none where no file has it."""
        return Positions(tuple(file for file in self.files if has_path(file, *self.base, *path)), (*self.base, *path))

    def _find(self, path: Path) -> Table | None:
        for depth in range(len(path), -1, -1):
            for file in self.files:
                if has_path(file, *self.base, *path[:depth]):
                    return file
        return None


NOWHERE = Positions()
"""The positions of a document that no file has."""
