"""Checkpoints that are whole or absent: `step-000050.npz`, then its marker `step-000050.done`."""

from __future__ import annotations

import os
from pathlib import Path

from wire import Arrays, pack, unpack


def save_checkpoint(folder: Path, step: int, arrays: Arrays) -> Path:
    """Write a checkpoint, and its marker once the data is on disk."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:06d}.npz"
    write_durably(path, pack(arrays))
    write_durably(path.with_suffix(".done"), b"")
    return path


def load_newest_checkpoint(folder: Path) -> Arrays | None:
    """Return the newest complete checkpoint, or None."""
    markers = sorted(folder.glob("step-*.done"), key=lambda marker: int(marker.stem.removeprefix("step-")))
    return unpack(markers[-1].with_suffix(".npz").read_bytes()) if markers else None


def write_durably(path: Path, content: bytes) -> None:
    """Create or replace a file so that after a crash it has its old or its new content, never a part."""
    draft = path.with_name(path.name + ".tmp")
    with draft.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)
