"""Files of a store that work has removed by way of a FUSE mount: a note for each, which the folder's uploader takes.

ROOT/data/N/MOUNT/removed/RANDOM    {"name"}: the object is to be removed, behind what was written before
"""

from __future__ import annotations

import json
import os

_FOLDER = "removed"
_NEW = ".new"


class RemovalNotes:
    """The notes beside a mount's folder; written by servers on any node, taken by the one uploader."""

    def __init__(self, files: str) -> None:
        self._folder = os.path.join(os.path.dirname(files), _FOLDER)

    def add(self, name: str) -> None:
        """Have an object removed. Raises OSError."""
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        path = os.path.join(self._folder, os.urandom(8).hex())
        with open(f"{path}{_NEW}", "w", encoding="utf-8") as file:
            json.dump({"name": name}, file)
        os.rename(f"{path}{_NEW}", path)

    def read(self) -> dict[str, str]:
        """The names that are noted, by the notes' paths."""
        try:
            notes = sorted(name for name in os.listdir(self._folder) if not name.endswith(_NEW))
        except OSError:
            return {}
        found = {}
        for note in notes:
            path = os.path.join(self._folder, note)
            try:
                with open(path, encoding="utf-8") as file:
                    found[path] = str(json.load(file)["name"])
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return found

    def take(self, path: str) -> None:
        """Remove a note that was taken."""
        try:
            os.unlink(path)
        except OSError:
            pass
