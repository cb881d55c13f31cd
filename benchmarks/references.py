"""What bars are counted in: how long this machine takes, now, for what every program does."""

from __future__ import annotations

import os
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Callable

from benchmarks.installation import whole_process
from benchmarks.rows import Reference

_COMMITS = 50
_FORKS = 50


def measure() -> Reference:
    """Medians of a bare interpreter's start to end, a commit of one row as the store makes it, and a fork's."""
    start = whole_process([sys.executable, "-c", "pass"], dict(os.environ))
    with tempfile.TemporaryDirectory() as folder:
        connection = sqlite3.connect(f"{folder}/reference.db", isolation_level=None)
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("CREATE TABLE line (text)")
        commit = _median(lambda: connection.execute("INSERT INTO line VALUES ('a')"), _COMMITS)
        connection.close()
    return Reference(start, commit, _median(_fork, _FORKS))


def slower(first: Reference, second: Reference) -> Reference:
    """The slower of each: what others do on the machine is no fault of what was measured between the two."""
    return Reference(*map(max, first, second))


def _fork() -> None:
    pid = os.fork()
    if not pid:
        os._exit(0)
    os.waitpid(pid, 0)


def _median(act: Callable[[], object], count: int) -> float:
    times = []
    for _ in range(count):
        begun = time.perf_counter()
        act()
        times.append((time.perf_counter() - begun) * 1000)
    return statistics.median(times)
