"""Objects that work has removed by way of a FUSE mount: a note for each, which the folder's uploader takes.

ROOT/data/N/MOUNT/removed/RANDOM    {"name", "etag", "modified"}: that version is to be removed, when all that was
                                    written before is in the store
"""

from __future__ import annotations

import json
import os

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.object_store import StoredObject

_FOLDER = "removed"
_NEW = ".new"
_ROUNDED = 1.0
"""Seconds by which a listing and a question for one object may differ in when that was written."""


class Removal(NamedTuple):
    """An object that is to be removed: its name in the folder, and the version that work has seen there."""

    name: str
    etag: str
    modified: float

    def means(self, stored: StoredObject) -> bool:
        """Whether that is the version; one of the same content may have been written later."""
        return stored.etag == self.etag and stored.modified <= self.modified + _ROUNDED


class RemovalNotes:
    """The notes beside a mount's folder; written by servers on any node, taken by the one uploader."""

    def __init__(self, files: str) -> None:
        self._folder = os.path.join(os.path.dirname(files), _FOLDER)

    def add(self, name: str, stored: StoredObject) -> None:
        """Have an object removed. Raises OSError."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = os.path.join(self._folder, os.urandom(8).hex())
        with open(f"{path}{_NEW}", "w", encoding="utf-8") as file:
            json.dump(Removal(name, stored.etag, stored.modified)._asdict(), file)
        os.rename(f"{path}{_NEW}", path)

    def read(self) -> dict[str, Removal]:
        """What is noted, by the notes' paths."""
        try:
            notes = sorted(name for name in os.listdir(self._folder) if not name.endswith(_NEW))
        except OSError:
            return {}
        found = {}
        for note in notes:
            path = os.path.join(self._folder, note)
            try:
                with open(path, encoding="utf-8") as file:
                    facts = json.load(file)
                found[path] = Removal(str(facts["name"]), str(facts["etag"]), float(facts["modified"]))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def list_names(self) -> set[str]:
        """The names that are noted."""
        return {each.name for each in self.read().values()}

    def take(self, path: str) -> None:
        """Remove a note that was taken."""
        try:
            os.unlink(path)
        except OSError:
            pass
