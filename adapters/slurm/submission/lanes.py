"""Calls beside each other: while one sbatch waits for the controller, another goes on."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from overspan.adapters.slurm.transports.rate_limit import Paced
from overspan.adapters.slurm.transports.transport import Call, Done, Transport
from overspan.bridge.model.errors import OverspanError

LANES = 4
LEAST = 4
"""Calls of each lane at least."""

Outcome = Done | OverspanError | None
"""What came of a call: its end, none that is known, or that it surely was not made."""


async def call_together(transport: Transport, calls: Sequence[Call], timeout: float) -> list[Outcome]:
    """Run calls, a few beside each other where they are many and the site limits no questions; roughly in order."""
    free = not isinstance(transport, Paced) or transport.bucket is None
    lanes = min(LANES, -(-len(calls) // LEAST)) if free else 1
    works = [transport.run_all(calls[lane::lanes], timeout) for lane in range(lanes)]
    outcomes: list[Outcome] = [None] * len(calls)
    for lane, found in enumerate(await asyncio.gather(*works, return_exceptions=True)):
        if isinstance(found, OverspanError):
            outcomes[lane::lanes] = [found] * len(calls[lane::lanes])
        elif isinstance(found, BaseException):
            raise found
        else:
            outcomes[lane::lanes] = found
    return outcomes
