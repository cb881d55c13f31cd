"""The output of launches whose workers do not see the daemon's folder, as they have sent it."""

from __future__ import annotations

import json
import os
import uuid

from overspan.adapters.abilities import OutputPiece
from overspan.adapters.local.files.journals import read_lines
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.bridge.runtime.pool.outputs import MOST_BYTES

MARK = "mark"
"""A file by which a worker finds out whether it sees the daemon's folder."""


def keep_piece(place: LaunchFiles, piece: OutputPiece) -> None:
    """Write a piece where it belongs, and name its file where it is the first one. Raises OSError."""
    folder = os.path.join(place.folder, "outputs")
    os.makedirs(folder, 0o700, exist_ok=True)
    path = os.path.join(folder, f"{place.launch}.{piece.number}")
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, piece.data[: max(0, MOST_BYTES - piece.offset)], piece.offset)
    finally:
        os.close(fd)
    if piece.offset == 0 and not any(line.get("path") == path for line in read_lines(place.streams)):
        line = json.dumps({**piece.stream, "path": path, "start": 0}) + "\n"
        with open(os.open(place.streams, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a") as file:
            file.write(line)


def write_mark(root: str) -> str:
    """Write the file by which a worker finds out whether it sees the daemon's folder; its text. Raises OSError."""
    mark = uuid.uuid4().hex
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with open(os.open(f"{root}/{MARK}", flags, 0o600), "w", encoding="ascii") as file:
        file.write(mark)
    return mark
