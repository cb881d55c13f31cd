"""Daemons that are killed at random moments."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress

from tests.system.conftest import Span
from tests.system.processes import find, is_daemon

KILLS = int(os.environ.get("OVERSPAN_KILLS", "10"))
"""Kills on each kind of cluster; `make soak` has 100."""


def kill_daemons(span: Span, most: int, seed: int, longest: float = 3.0) -> int:
    """Kill the daemon at random moments, at most `longest` seconds apart, also while it starts; how often."""
    chance, kills = random.Random(seed), 0
    while kills < most:
        # The moment of a kill is the test's chance, not a wait for anything.
        time.sleep(chance.uniform(0.2, longest))
        pids = find(span.state, is_daemon)
        for pid in pids[:1]:
            # One that another was quicker than ends by itself.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                kills += 1
        # Half of the time nobody asks for a new one for a while.
        if not pids or chance.random() < 0.5:
            span.run("squeue", "--noheader", check=False)
    return kills
