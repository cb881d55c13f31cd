"""An event loop whose clock jumps to what is due next, and timers that hang on it."""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from typing import Any

from tests.unit.controller.fakes import FakeClock


class VirtualClock(FakeClock):
    """The fake clock with the loop's own timers, so that nobody has to advance it."""

    def __init__(self) -> None:
        super().__init__()
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def set(self, name: str, at: float, call: Callable[[], None]) -> None:
        def wake() -> None:
            # The loop may be a rounding error early.
            self.now = max(self.now, at)
            self._handles.pop(name, None)
            call()

        self.drop(name)
        self._handles[name] = asyncio.get_running_loop().call_at(max(at, self.now), wake)

    def drop(self, name: str) -> None:
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def move(self, seconds: float) -> None:
        raise NotImplementedError

    def close(self) -> None:
        for name in list(self._handles):
            self.drop(name)


class _Jump(selectors.SelectSelector):
    """Has no files; instead of waiting it moves the clock on."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__()
        self._clock = clock

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "everybody waits for ever"
        self._clock.now += max(timeout, 0.0)
        return []


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self, clock: FakeClock) -> None:
        super().__init__(_Jump(clock))
        self._clock = clock
        self._clock_resolution = 1e-6

    def time(self) -> float:
        return self._clock.now


def run_virtually(clock: FakeClock, scene: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run a scene in no time."""
    with asyncio.Runner(loop_factory=lambda: _VirtualLoop(clock)) as runner:
        runner.run(scene())
