"""Trials that passed: jobs that ask Slurm for the same are tried once a minute, however many are submitted."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence

from overspan.adapters.slurm.transports.transport import Call

KEEP_SECONDS = 60.0
MOST = 1000
_NO_MATTER = re.compile(r"--(job-name|comment|chdir|output|error|input|begin|dependency)(=|$)")
"""Options that cannot make a cluster refuse a job, or that differ from job to job; each is one word."""
_VARIABLES = ("SBATCH_", "SLURM_")

Demand = tuple[tuple[str, ...], ...]


class PassedTrials:
    """Remembers for a minute what `sbatch --test-only` accepted; refusals are not remembered."""

    def __init__(self, clock: Callable[[], float] = lambda: time.monotonic()) -> None:
        self._clock = clock
        self._passed: dict[Demand, float] = {}

    def passed(self, calls: Iterable[Call]) -> bool:
        """Whether jobs that ask for the same were all accepted within the last minute."""
        now = self._clock()
        return all(now - self._passed.get(read_demand(call), float("-inf")) < KEEP_SECONDS for call in calls)

    def note_passed(self, calls: Sequence[Call]) -> None:
        """Remember that these were accepted."""
        now = self._clock()
        for call in calls:
            self._passed.pop(read_demand(call), None)
            self._passed[read_demand(call)] = now
        while len(self._passed) > MOST:
            del self._passed[next(iter(self._passed))]


def read_demand(call: Call) -> Demand:
    """What a trial asks for: its options, those in the script, and the variables that stand for options."""
    options = tuple(word for word in call.argv if not _NO_MATTER.match(word))
    lines = call.stdin.decode("utf-8", "surrogateescape").splitlines()
    variables = sorted(f"{name}={value}" for name, value in call.environment.items() if name.startswith(_VARIABLES))
    return options, tuple(line for line in lines if line.startswith("#SBATCH")), tuple(variables)
