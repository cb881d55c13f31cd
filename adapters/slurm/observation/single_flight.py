"""Single-flight: callers of one question share one query. A caller that stops waiting does not cancel it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SingleFlight:
    """At most one query at a time; sets `fresh` when it has ended, also when it has failed."""

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
        """The error of the last query; each error is returned once."""
        reported, self._reported = self._reported, True
        return None if reported else self.trouble

    def forget(self) -> None:
        """Drop the error: the caller has given the question up."""
        self.trouble = None

    async def close(self) -> None:
        """Cancel the query."""
        task = self.task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
