"""Time that passes only when nobody has anything to do, and crashes at any await of a controller."""

from __future__ import annotations

import asyncio
import random
import selectors
import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

from overspan.bridge.controller.core import timers
from overspan.bridge.store.connection import parse_target
from overspan.bridge.store.requests import StoreRequest, StoreRequests
from overspan.bridge.store.store import Store
from overspan.bridge.store.writer import Writer

START = 1_700_000_000.0


class Stuck(Exception):
    """Nobody waits for a time, and nothing can happen any more."""


class _Jumping(selectors.SelectSelector):
    """Instead of waiting, moves the time on."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is None:
            raise Stuck
        self.now += max(0.0, timeout)
        return super().select(0)


class Clockwork(asyncio.SelectorEventLoop):
    """An event loop with a time of its own."""

    def __init__(self) -> None:
        self._jumping = _Jumping()
        super().__init__(self._jumping)

    def time(self) -> float:
        """Seconds since the loop was made."""
        return self._jumping.now


def wall_time() -> float:
    """The time of the simulated world, epoch seconds."""
    return START + asyncio.get_running_loop().time()


class LoopTimers(timers.LoopTimers):
    """The controller's timers in the simulated world."""

    def __init__(self) -> None:
        super().__init__(wall_time)


class Life:
    """One run of a daemon, from its start to its crash."""

    def __init__(self) -> None:
        self.dead = False
        self.died = asyncio.Event()

    def end(self) -> None:
        """Crash: from here on nothing of this life has any effect."""
        self.dead = True
        self.died.set()


LIFE: ContextVar[Life] = ContextVar("LIFE")
"""The life that the running coroutine belongs to."""


class Chaos:
    """The one source of chance of a seed; `calm` ends all mischief."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.calm = False
        self.crashes_left = self.random.randrange(8)
        self.crash_rate = self.random.choice((0.002, 0.01, 0.05))
        self.trouble_rate = self.random.choice((0.0, 0.05, 0.2))

    def happens(self, rate: float) -> bool:
        """Whether something of that likelihood happens now."""
        return not self.calm and self.random.random() < rate

    @property
    def trouble(self) -> bool:
        """Whether a call goes wrong."""
        return self.happens(self.trouble_rate)

    async def pause(self) -> None:
        """An await at which time may pass, others may run, or the life may end."""
        life = LIFE.get()
        if not life.dead and self.crashes_left and self.happens(self.crash_rate):
            self.crashes_left -= 1
            life.end()
        for _ in range(self.random.randrange(3)):
            await asyncio.sleep(0)
        if self.random.random() < 0.2:
            await asyncio.sleep(self.random.uniform(0.0, 0.3))
        if life.dead:
            raise asyncio.CancelledError


class _Mailbox:
    """Stands for the event loop before the writer's thread, so that its answer comes at a known moment."""

    def __init__(self) -> None:
        self._arrived = threading.Event()
        self._call: Callable[[], object]

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: Any) -> None:
        """Take the answer."""
        self._call = lambda: callback(*arguments)
        self._arrived.set()

    def open(self) -> None:
        """Wait for the writer, and deliver."""
        assert self._arrived.wait(120), "the store does not answer"
        self._call()


class SteppedStore(Store):
    """The real store; each call is one step with a crash point before it and one between commit and answer."""

    @classmethod
    def open_within(cls, chaos: Chaos) -> SteppedStore:
        """A database in memory."""
        writer = Writer(parse_target(":memory:", exclusive=True, wait=5.0))
        writer.start()
        return cls(writer, _SteppedRequests(writer.put, chaos))


class _SteppedRequests(StoreRequests):
    def __init__(self, put: Callable[[StoreRequest], None], chaos: Chaos) -> None:
        super().__init__(put)
        self._chaos = chaos

    async def send(self, request: StoreRequest) -> Any:
        await self._chaos.pause()
        mailbox = _Mailbox()
        request.loop = mailbox  # type: ignore[assignment]
        self._put(request)
        mailbox.open()
        await self._chaos.pause()
        return await request.answer
