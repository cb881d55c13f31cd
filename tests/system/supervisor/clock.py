"""A supervisor's clock that the test moves: what lasts an hour is over when the test says so, however slow the machine.

Everything that the supervisor starts for itself goes by it; the user's programs have the machine's.
"""

from __future__ import annotations

import os
from pathlib import Path

CODE = """
import sys, time
from overspan.bridge.supervisor import host

real = time.time

def moved():
    with open({place!r}) as file:
        return real() + float(file.read())

time.time = moved
sys.exit(host.main())
"""

HOUR = 3600
SLACK = 600
"""Seconds that a machine may need for what is to be done at once."""


class Clock:
    """The machine's clock, and what the test adds to it."""

    def __init__(self, folder: Path) -> None:
        self._place = folder / "clock"
        self.code = CODE.format(place=str(self._place))
        """The program of a supervisor that goes by this clock, for `Hosts.start`."""
        self.move(0)

    def move(self, seconds: float) -> None:
        """Have it be so many seconds ahead of the machine's."""
        part = self._place.with_suffix(".part")
        part.write_text(str(seconds))
        os.replace(part, self._place)
