"""A question that is asked once at a time; whoever stops waiting for it does not stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class Turn:
    """One question under way at most; `fresh` is set when it has an answer or none."""

    def __init__(self, fresh: asyncio.Event) -> None:
        self.task: asyncio.Task[None] | None = None
        self._fresh = fresh
        self._trouble: Exception | None = None

    def begin(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask, unless it is being asked."""
        if self.task is None:
            self.task = asyncio.create_task(self._run(ask))

    async def _run(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except Exception as error:
            self._trouble = error
        finally:
            self.task = None
            self._fresh.set()

    def take_trouble(self) -> Exception | None:
        """What the last question failed with; told once."""
        trouble, self._trouble = self._trouble, None
        return trouble

    async def close(self) -> None:
        """Stop asking."""
        task = self.task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
