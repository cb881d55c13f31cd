"""A supervisor's clocks that the test moves: what lasts an hour is over when the test says so, on any machine.

Everything that the supervisor starts for itself goes by them; the user's programs have the machine's.
"""

from __future__ import annotations

import os
from pathlib import Path

CODE = """
import sys, time
from overspan.bridge.runtime.local import supervisor

wall, elapsed = time.time, time.clock_gettime

def read():
    with open({place!r}) as file:
        return [float(word) for word in file.read().split()]

time.time = lambda: wall() + sum(read())
time.clock_gettime = lambda which: elapsed(which) + read()[0]
sys.exit(supervisor.main(sys.argv[1:]))
"""

HOUR = 3600
SLACK = 600
"""Seconds that a machine may need for what is to be done at once."""


class Clock:
    """The machine's clocks, and what the test adds to them."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / "clock"
        self.code = CODE.format(place=str(self._place))
        """The program of a supervisor that goes by this clock, for `Hosts.start`."""
        self._passed = self._jump = 0.0
        self.move(0)

    def move(self, seconds: float) -> None:
        """Have so many seconds more than on the machine have passed."""
        self._passed = seconds
        self._write()

    def jump(self, seconds: float) -> None:
        """Have the wall clock set by so much, in all, while no time passes."""
        self._jump = seconds
        self._write()

    def _write(self) -> None:
        part = self._place.with_suffix(".part")
        part.write_text(f"{self._passed} {self._jump}")
        os.replace(part, self._place)
