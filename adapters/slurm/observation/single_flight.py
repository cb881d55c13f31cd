"""A question that is asked once at a time; whoever stops waiting for it does not stop it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable


class SingleFlight:
    """One question under way at most; `fresh` is set when it has an answer or none."""

    def __init__(self, fresh: asyncio.Event) -> None:
        self.task: asyncio.Task[None] | None = None
        self.trouble: Exception | None = None
        """Why the last question that ended had no answer; None where it had one."""
        self._fresh = fresh
        self._told = True

    def begin(self, ask: Callable[[], Awaitable[None]]) -> None:
        """Ask, unless it is being asked."""
        if self.task is None:
            self.task = asyncio.create_task(self._run(ask))

    async def _run(self, ask: Callable[[], Awaitable[None]]) -> None:
        try:
            await ask()
        except Exception as error:
            self.trouble, self._told = error, False
        else:
            self.trouble = None
        finally:
            self.task = None
            self._fresh.set()

    def take_trouble(self) -> Exception | None:
        """What the last question failed with; told once."""
        told, self._told = self._told, True
        return None if told else self.trouble

    def forget(self) -> None:
        """Nobody asks that any more."""
        self.trouble = None

    async def close(self) -> None:
        """Stop asking."""
        task = self.task
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
