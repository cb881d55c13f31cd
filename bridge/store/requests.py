"""Requests to the writer's thread: `Store` and its ports run their statements by them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection

from overspan.bridge.model.errors import OverspanError
from overspan.bridge.store.records import Damage
from overspan.bridge.store.rows import RowBatch

log = logging.getLogger(__name__)

Call = Callable[[Connection], Any]
T = TypeVar("T")


@dataclass(eq=False, slots=True)
class StoreRequest:
    """One caller's request: batches of rows to write, a call that writes, or a call that reads."""

    loop: asyncio.AbstractEventLoop
    answer: asyncio.Future[Any]
    batches: tuple[RowBatch, ...] = ()
    call: Call | None = None
    reads: bool = False
    result: Any = None
    error: OverspanError | None = None


class StoreRequests:
    """Runs statements in the writer's thread; each call returns when its transaction is committed.

    Raises StoreFailed and Conflict, as `Store` does. `damages` are the rows that could not be read, by what is said.
    """

    def __init__(self, put: Callable[[StoreRequest], None]) -> None:
        self._put = put
        self.damages: dict[str, Damage] = {}

    async def write(self, batches: tuple[RowBatch, ...]) -> list[bool]:
        """Write batches of rows in one transaction; False for one whose expected version was not there."""
        loop = asyncio.get_running_loop()
        answer: list[bool] = await self.send(StoreRequest(loop, loop.create_future(), batches=batches))
        return answer

    async def call(self, call: Callable[[Connection], T]) -> T:
        """Run a function that writes; its result."""
        loop = asyncio.get_running_loop()
        answer: T = await self.send(StoreRequest(loop, loop.create_future(), call=call))
        return answer

    async def read(self, call: Callable[[Connection], T]) -> T:
        """Run a function that reads; its result."""
        loop = asyncio.get_running_loop()
        answer: T = await self.send(StoreRequest(loop, loop.create_future(), call=call, reads=True))
        return answer

    async def read_intact(self, call: Callable[[Connection], tuple[list[T], list[Damage]]]) -> list[T]:
        """Run a function that reads records; those that could be read. The damages of others are noted."""
        found, damages = await self.read(call)
        self.note(damages)
        return found

    def note(self, damages: Iterable[Damage]) -> None:
        """Note rows that cannot be read, each once, and say so in the log."""
        for damage in damages:
            if damage.text not in self.damages:
                log.error("%s; it is left as it is", damage.text)
            self.damages[damage.text] = damage

    async def send(self, request: StoreRequest) -> Any:
        """Queue a request for the writer; its answer."""
        self._put(request)
        return await request.answer
