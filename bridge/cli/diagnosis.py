"""What sdiag says: the times and counts of Slurm's answer that mean something here. Pure."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from overspan.bridge.client.records import JobRow

_RULE = "*" * 55


def diagnosis_text(rows: Sequence[JobRow], ping: Mapping[str, Any], now: float) -> str:
    """The answer for the jobs that the queue knows, finished ones of the last minutes too."""
    since = float(ping.get("since") or now)
    states = [row.state for row in rows]
    ended = sum(state in ("COMPLETED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL") for state in states)
    lines = [
        _RULE,
        f"sdiag output at {_when(now)}",
        f"Data since      {_when(since)}",
        _RULE,
        "Server thread count:  1",
        "Agent queue size:     0",
        "Agent count:          0",
        "Agent thread count:   0",
        "DBD Agent queue size: 0",
        "",
        f"Jobs submitted: {len(rows)}",
        f"Jobs started:   {sum(row.started_at is not None for row in rows)}",
        f"Jobs completed: {ended}",
        f"Jobs canceled:  {states.count('CANCELLED')}",
        f"Jobs failed:    {states.count('FAILED')}",
        "",
        f"Job states ts:  {_when(now)}",
        f"Jobs pending:   {states.count('PENDING')}",
        f"Jobs running:   {states.count('RUNNING')}",
    ]
    return "".join(f"{line}\n" for line in lines)


def _when(epoch: float) -> str:
    return time.strftime("%a %b %d %H:%M:%S %Y", time.localtime(epoch)) + f" ({int(epoch)})"
