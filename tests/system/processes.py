"""Processes of an installation, found by their folders under /proc."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path


def find(state: Path, fits: Callable[[Path], bool]) -> list[int]:
    """Processes of an installation, by a fact of their folder under /proc."""
    found = []
    mark = os.fsencode(state)
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and fits(folder) and mark in _facts(folder):
                found.append(int(folder.name))
        except OSError:
            continue
    return found


def _facts(folder: Path) -> bytes:
    return (folder / "environ").read_bytes() + (folder / "cmdline").read_bytes()


def is_daemon(folder: Path) -> bool:
    """Whether this is a daemon, also one that is just starting."""
    return b"overspan.bridge.api" in (folder / "cmdline").read_bytes()
