"""Disks without room."""

from __future__ import annotations

import errno
from pathlib import Path


def fill(folder: Path) -> Path:
    """Take what is left of a disk."""
    path = folder / "filler"
    with path.open("wb", buffering=0) as file:
        for size in (65536, 4096, 1):
            try:
                while True:
                    file.write(b"x" * size)
            except OSError as error:
                assert error.errno == errno.ENOSPC
    return path
