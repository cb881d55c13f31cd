"""Orders of a process that has just begun: what they are about is looked at for the first time meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

SECONDS = 5.0
"""How long a first look is waited for."""
_PAUSE = 0.1


async def await_first_observation(is_looked: Callable[[], bool]) -> bool:
    """Whether there has been a first look, which is waited for a moment: a refusal would be repeated ever later."""
    deadline = time.monotonic() + SECONDS
    while not is_looked() and time.monotonic() < deadline:
        await asyncio.sleep(_PAUSE)
    return is_looked()
