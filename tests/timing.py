"""Where the time of a run went: a table by folder at its end, and a line where the run was longer than its bar."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest
from tests.tiers import DURATIONS, UNKNOWN_SECONDS, read_durations

FOLDER_DEPTH = 3
"""`tests/system/slurm`: so many parts of a path name a row of the table."""


class Timing:
    """Adds up what each test took, over all its phases and all workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._bar: float = config.getoption("--bar")
        self._record: bool = config.getoption("--record-durations")
        self._began = time.monotonic()
        self._spent: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Count one phase of a test."""
        self._spent[report.nodeid] = self._spent.get(report.nodeid, 0.0) + report.duration

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the table, and keep the durations where they were asked for."""
        wall = time.monotonic() - self._began
        if self._record:
            self._write()
        terminalreporter.section("time by folder")
        for line in self._list_rows():
            terminalreporter.write_line(line)
        terminalreporter.write_line(f"{sum(self._spent.values()):8.0f} s of all workers in {wall:.0f} s")
        if self._bar and wall > self._bar:
            terminalreporter.write_line(f"OVER THE BAR: {wall:.0f} s, and it may take {self._bar:.0f} s", red=True)

    def _list_rows(self) -> Iterator[str]:
        folders: dict[str, list[float]] = {}
        for nodeid, seconds in self._spent.items():
            parts = nodeid.partition("::")[0].split("/")[:-1]
            folders.setdefault("/".join(parts[:FOLDER_DEPTH]), []).append(seconds)
        for folder, each in sorted(folders.items(), key=lambda row: -sum(row[1])):
            yield f"{sum(each):8.0f} s {len(each):6} tests  {folder}"

    def _write(self) -> None:
        known = {**read_durations(), **{nodeid: round(seconds, 1) for nodeid, seconds in self._spent.items()}}
        kept = {nodeid: seconds for nodeid, seconds in sorted(known.items()) if seconds > 10 * UNKNOWN_SECONDS}
        DURATIONS.write_text(json.dumps(kept, indent=0) + "\n")
