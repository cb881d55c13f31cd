"""What of a folder is in its store: a line for each file that was sent or fetched, beside the folder.

It is written without fsync: what is missing of it is sent once more, which changes nothing.
"""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.data.object_store import StoredObject


class SyncedFile(NamedTuple):
    """A file as it was when its content and the store's were the same."""

    size: int
    written: int
    """Its mtime in nanoseconds."""
    etag: str

    def means(self, stored: StoredObject) -> bool:
        """Whether an object of the store is this version."""
        return stored.etag == self.etag


class FolderState:
    """The synced files of one folder, by their names below it."""

    def __init__(self, path: str) -> None:
        self.files: dict[str, SyncedFile] = {}
        self.lock = threading.Lock()
        """Held while a file and what is known of it go: in between it looks like one that is to be sent."""
        self._path = path
        self._load()

    def put(self, name: str, file: SyncedFile) -> None:
        """Note a file that is in the store as it is."""
        self.files[name] = file
        self._append([name, *file])

    def forget(self, name: str) -> None:
        """Note a file that is in neither any more."""
        if self.files.pop(name, None) is not None:
            self._append([name])

    def is_synced(self, name: str, size: int, written: int) -> bool:
        """Whether the store has this version."""
        known = self.files.get(name)
        return known is not None and (known.size, known.written) == (size, written)

    def _load(self) -> None:
        try:
            with open(self._path, encoding="utf-8", errors="surrogateescape") as file:
                lines = file.readlines()
        except OSError:
            return
        for line in lines:
            row = _read(line)
            if row is None:
                continue
            name, *values = row
            if values:
                self.files[name] = SyncedFile(*values)
            else:
                self.files.pop(name, None)

    def _append(self, row: list[object]) -> None:
        line = json.dumps(row, separators=(",", ":"))
        try:
            fd = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        except OSError:
            return
        try:
            # A line that a full disk cut is ended by the next one, and neither counts.
            os.write(fd, f"{line}\n".encode("utf-8", "surrogateescape"))
        except OSError:
            pass
        finally:
            os.close(fd)


def _read(line: str) -> Optional[list[Any]]:
    try:
        row = json.loads(line) if line.endswith("\n") else None
    except ValueError:
        return None
    return row if isinstance(row, list) and len(row) in (1, 4) else None
