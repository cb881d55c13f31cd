"""Removes the run directories of jobs that ended long ago."""

from __future__ import annotations

import os
import shutil

from overspan.adapters.local.launch_files import remove
from overspan.bridge.runtime.core.loss_records import FOLDER


def forget_runs(root: str, before: float) -> int:
    """Remove each run directory that has no live launch and was last changed before that time; gives how many."""
    runs = os.path.join(root, "runs")
    live = {name.partition(".")[0] for name in _list(os.path.join(root, "tickets"))}
    removed = 0
    for name in _list(runs):
        path = os.path.join(runs, name)
        if name not in live and _last_change(path) < before:
            shutil.rmtree(path, ignore_errors=True)
            for loss in _list(os.path.join(root, FOLDER)):
                if loss.partition(".")[0] == name:
                    remove(os.path.join(root, FOLDER, loss))
            removed += 1
    return removed


def _last_change(path: str) -> float:
    """When something was last written in the run directory itself: its journals tell of every event."""
    times = [os.stat(path).st_mtime]
    with os.scandir(path) as entries:
        times += [entry.stat(follow_symlinks=False).st_mtime for entry in entries]
    return max(times)


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except FileNotFoundError:
        return []
