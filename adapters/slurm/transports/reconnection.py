"""Opens a connection: single-flight for all callers, with back-off after a failure."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable

from overspan.bridge.model.errors import Unreachable

FIRST_WAIT = 1.0
LONGEST_WAIT = 5.0
"""Seconds between two tries, at most. Callers poll more slowly than this, so they seldom meet the back-off."""
LONGEST_REFUSED = 60.0
"""The same if the host refused the login: hosts lock out clients that try too often."""
_REFUSED = re.compile(r"Permission denied|[Aa]uthentication|Host key|host key|not found in known_hosts")


class ReconnectDelay:
    """Back-off between tries to open one connection. Times are of `clock`, seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._next = 0.0
        self._trouble = ""

    def check(self) -> None:
        """Raise Unreachable with the error of the last try if it is too early for another."""
        if self._failures and self._clock() < self._next:
            raise Unreachable(self._trouble)

    def retry(self) -> None:
        """Allow the next try at once, as when a user asks for the current state."""
        self._next = 0.0

    def succeed(self) -> None:
        """Note that the connection is open."""
        self._failures = 0

    def fail(self, trouble: str) -> None:
        """Note a failed try and its error."""
        longest = LONGEST_REFUSED if _REFUSED.search(trouble) else LONGEST_WAIT
        self._trouble = trouble
        self._next = self._clock() + min(FIRST_WAIT * 2.0 ** min(self._failures, 10), longest)
        self._failures += 1


class SharedOpening:
    """Single-flight opening of one connection; a caller that stops waiting does not cancel it."""

    def __init__(self, open_it: Callable[[], Awaitable[None]]) -> None:
        self._open_it = open_it
        self._task: asyncio.Task[None] | None = None

    async def wait(self) -> None:
        """Wait until the connection is open. Raises the error of a failed try."""
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._open_it())
            # Retrieves the exception: asyncio would log it if no caller is left to do so.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        opening = self._task
        await asyncio.wait([opening])
        if opening.cancelled():
            raise Unreachable("the connection was closed")
        opening.result()

    async def close(self) -> None:
        """Stop opening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


class Sessions:
    """Limits concurrent calls over one connection. A call's time limit includes its wait for a session."""

    def __init__(self, most: int, host: str, opening: SharedOpening) -> None:
        self._free = asyncio.Semaphore(most)
        self._host = host
        self._opening = opening

    async def enter(self, timeout: float) -> None:
        """Wait for a session on the open connection. Raises Unreachable when the time is over first."""
        try:
            async with asyncio.timeout(timeout):
                await self._free.acquire()
                try:
                    await self._opening.wait()
                except BaseException:
                    self.leave()
                    raise
        except TimeoutError:
            raise Unreachable(f"{self._host}: no connection was free within {timeout:g} s") from None

    def leave(self) -> None:
        """Release the session."""
        self._free.release()
