"""A start-up delay for orders: a new process waits a moment for its first look at their launches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SECONDS = 5.0
"""The longest wait for a first look."""
_PAUSE = 0.1


async def await_first_observation(is_looked: Callable[[], bool], since: float | None = None) -> bool:
    """Wait a moment for the first look; returns whether it happened. A refusal instead would cost a back-off.

    `since` is when the wait began (time.monotonic), for orders that wait together; None: now.
    """
    deadline = (time.monotonic() if since is None else since) + SECONDS
    while not is_looked() and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE)
    return is_looked()
