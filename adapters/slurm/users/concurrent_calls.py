"""Concurrent calls for many users: a user's call that hangs delays the others by WAIT_SECONDS at most.

A call that takes longer goes on, and its answers are kept until the daemon asks again.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Generic, Protocol, TypeVar

from overspan.adapters.contract import SomeUnanswered
from overspan.bridge.model.errors import OverspanError

log = logging.getLogger(__name__)

WAIT_SECONDS = 2.0
"""Seconds for which all users wait for the slowest."""
REST = 5.0
"""Seconds between a user's failed call and the next try."""
_KEPT = 20_000


class Tokened(Protocol):
    """A launch or an order."""

    @property
    def token(self) -> str:
        """Its idempotency key."""


I = TypeVar("I", bound=Tokened)  # noqa: E741
A = TypeVar("A")


class ConcurrentCalls(Generic[I, A]):
    """Single-flight for each user: one call at a time, which a caller that stops waiting does not cancel."""

    def __init__(self, call: Callable[[str, Sequence[I]], Awaitable[Sequence[A]]]) -> None:
        self._call = call
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._known: dict[str, A] = {}
        self._failed: dict[str, tuple[float, OverspanError]] = {}

    async def make(self, items: Mapping[str, Sequence[I]]) -> dict[str, A]:
        """The answers by token. Raises SomeUnanswered if some are missing, or the error if all users' calls failed."""
        begun = [task for user, own in items.items() if (task := self._begin(user, own)) is not None]
        if begun:
            await asyncio.wait(begun, timeout=WAIT_SECONDS)
        tokens = [item.token for own in items.values() for item in own]
        answers = {token: self._known.pop(token) for token in tokens if token in self._known}
        if len(answers) < len(tokens):
            failed = [self._failed[user][1] for user in items if user in self._failed]
            if not answers and len(failed) == len(items):
                raise failed[0]
            raise SomeUnanswered(answers)
        return answers

    async def close(self) -> None:
        """Cancel all calls."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _begin(self, user: str, items: Sequence[I]) -> asyncio.Task[None] | None:
        """Start a call for items without an answer, unless one is under way or has just failed."""
        missing = [item for item in items if item.token not in self._known]
        failed_at = self._failed[user][0] if user in self._failed else -REST
        if not missing or user in self._tasks or time.monotonic() - failed_at < REST:
            return None
        task = self._tasks[user] = asyncio.create_task(self._run(user, missing))
        return task

    async def _run(self, user: str, items: Sequence[I]) -> None:
        try:
            answers = await self._call(user, items)
        except SomeUnanswered as some:
            self._keep(user, some.answers)
        except OverspanError as error:
            self._fail(user, error)
        except Exception as error:
            log.exception("a call for %s", user)
            self._fail(user, OverspanError(f"{type(error).__name__}: {error}"))
        else:
            self._keep(user, dict(zip((item.token for item in items), answers, strict=True)))
        finally:
            del self._tasks[user]

    def _keep(self, user: str, answers: Mapping[str, A]) -> None:
        self._failed.pop(user, None)
        self._known.update(answers)
        while len(self._known) > _KEPT:
            del self._known[next(iter(self._known))]

    def _fail(self, user: str, error: OverspanError) -> None:
        if user not in self._failed:
            log.warning("calls for %s fail: %s", user, error.message)
        self._failed[user] = time.monotonic(), error
