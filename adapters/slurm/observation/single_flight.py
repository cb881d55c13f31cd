"""Single-flight: one query at a time for a question. A caller that stops waiting does not cancel the query."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SingleFlight:
    """At most one query under way; sets `fresh` when the query has ended, with an answer or without."""

    def __init__(self, fresh: asyncio.Event) -> None:
        self.task: asyncio.Task[None] | None = None
        self.trouble: Exception | None = None
        """Why the last query failed; None where it succeeded."""
        self._fresh = fresh
        self._reported = True

    def begin(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Start the query, unless one is under way."""
        if self.task is None:
            self.task = asyncio.create_task(self._run(ask))

    async def _run(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except Exception as error:
            self.trouble, self._reported = error, False
        else:
            self.trouble = None
        finally:
            self.task = None
            self._fresh.set()

    def take_trouble(self) -> Exception | None:
        """The error of the last query, given once."""
        reported, self._reported = self._reported, True
        return None if reported else self.trouble

    def forget(self) -> None:
        """Drop the error: the question does not matter any more."""
        self.trouble = None

    async def close(self) -> None:
        """Cancel the query."""
        task = self.task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
