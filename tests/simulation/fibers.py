"""Threads of a simulated world: one runs at a time, and only while the event loop waits for it.

Code that blocks stays as it is: where it would wait, its thread parks, and the loop goes on. Who runs when is the
loop's order alone, so that a seed is played the same way each time.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from asyncio import Future
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any

from tests.simulation.clockwork import LIFE, Clockwork, Life


class Killed(BaseException):
    """The daemon of this thread has died."""


class Silent(Exception):
    """Nothing has come for as long as the reader waits."""


class _Worker:
    """A thread of the machine's, which carries one fiber after the other."""

    def __init__(self, fibers: Fibers) -> None:
        self.go = threading.Lock()
        self.go.acquire()
        self.fiber: Fiber | None = None
        self.thread = threading.Thread(target=self._run, args=(fibers,), name="fiber", daemon=True)
        self.thread.start()

    def _run(self, fibers: Fibers) -> None:
        while True:
            self.go.acquire()
            if self.fiber is None:
                return
            self.fiber.carry_out()
            self.fiber = None
            fibers.finish(self)


class Fiber:
    """One thread of the simulated world."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.context = contextvars.copy_context()
        self.life: Life = self.context[LIFE]
        self.worker: _Worker | None = None
        self.turn = 0
        """Counts its waits: what is to end one of them does not end a later one."""
        self.error: BaseException | None = None
        self.failure: BaseException | None = None
        self.deadline: float | None = None
        """When a stream that it reads has been silent for too long."""
        self.over = False
        self._work = work

    def carry_out(self) -> None:
        """Do its work."""
        try:
            if not self.life.dead:
                self.context.run(self._work)
        except Killed:
            pass
        except BaseException as error:
            self.failure = error
        self.over = True


class Fibers:
    """All threads of a simulated world."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._back = threading.Lock()
        self._back.acquire()
        self._idle: list[_Worker] = []
        self._current: Fiber | None = None
        self._live: dict[Fiber, None] = {}

    @property
    def current(self) -> Fiber:
        """The fiber that asks."""
        assert self._current is not None, "this is no fiber"
        return self._current

    def time(self) -> float:
        """The loop's time."""
        return self._loop.time()

    def later(self, seconds: float, call: Callable[[], object]) -> None:
        """Have the loop call something in so many seconds."""
        self._loop.call_later(seconds, call)

    def start(self, work: Callable[[], None]) -> Fiber:
        """A new fiber of the present life; it begins when the loop comes to it."""
        fiber = Fiber(work)
        self._live[fiber] = None
        self._loop.call_soon(self._resume, fiber, fiber.turn)
        return fiber

    def park(self, seconds: float | None = None) -> None:
        """Have the calling fiber wait so long, or until it is woken; raises what it is woken with."""
        fiber = self.current
        if fiber.life.dead:
            raise Killed
        handle = None if seconds is None else self._loop.call_later(max(0.0, seconds), self._resume, fiber, fiber.turn)
        assert fiber.worker is not None
        self._back.release()
        fiber.worker.go.acquire()
        if handle is not None:
            handle.cancel()
        error, fiber.error = fiber.error, None
        if fiber.life.dead:
            raise Killed
        if error is not None:
            raise error

    def wake(self, fiber: Fiber, error: BaseException | None = None) -> None:
        """End the present wait of a fiber."""
        fiber.error = error or fiber.error
        self._loop.call_soon(self._resume, fiber, fiber.turn)

    def bury(self) -> None:
        """End the fibers of lives that are over, and let them clean up."""
        for fiber in list(self._live):
            if fiber.life.dead:
                self._resume(fiber, fiber.turn)

    def close(self) -> None:
        """End every fiber, and the threads of the machine's."""
        for fiber in list(self._live):
            fiber.life.end()
        self.bury()
        for worker in self._idle:
            worker.go.release()
            worker.thread.join()

    def finish(self, worker: _Worker) -> None:
        """Take back the thread of a fiber that is over."""
        self._idle.append(worker)
        self._back.release()

    def _resume(self, fiber: Fiber, turn: int) -> None:
        """Let a fiber run until it waits again; on the loop's own thread."""
        if fiber.over or fiber.turn != turn:
            return
        assert self._current is None
        fiber.turn += 1
        if fiber.worker is None:
            fiber.worker = self._idle.pop() if self._idle else _Worker(self)
            fiber.worker.fiber = fiber
        self._current = fiber
        fiber.worker.go.release()
        self._back.acquire()
        self._current = None
        if fiber.over:
            del self._live[fiber]
            if fiber.failure is not None:
                raise fiber.failure


class FiberLoop(Clockwork):
    """An event loop with a time of its own, whose threads are fibers."""

    def __init__(self) -> None:
        super().__init__()
        self.fibers = Fibers(self)

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        """Call the function in a fiber."""
        done = self.create_future()

        def work() -> None:
            try:
                result = func(*args)
            except Exception as error:
                if not done.done():
                    done.set_exception(error)
            else:
                if not done.done():
                    done.set_result(result)

        self.fibers.start(work)
        return done

    def close(self) -> None:
        """End its fibers, too."""
        self.fibers.close()
        super().close()


class Condition:
    """In the place of threading.Condition: no lock is needed where nobody is interrupted.

    `told` is called on the loop after it was notified.
    """

    def __init__(self, fibers: Fibers, told: Callable[[], None]) -> None:
        self._fibers, self._told = fibers, told
        self._tells = False
        self._waiting: list[Fiber] = []

    def __enter__(self) -> bool:
        return True

    def __exit__(self, *_: object) -> None:
        pass

    def wait(self, timeout: float | None = None) -> None:
        """Wait to be notified. Raises Silent at the fiber's own deadline."""
        fiber = self._fibers.current
        left = None if fiber.deadline is None else fiber.deadline - self._fibers.time()
        self._waiting.append(fiber)
        try:
            self._fibers.park(min((one for one in (timeout, left) if one is not None), default=None))
        finally:
            self._waiting.remove(fiber)
        if fiber.deadline is not None and self._fibers.time() >= fiber.deadline:
            raise Silent

    def notify_all(self) -> None:
        """Wake everybody."""
        for fiber in self._waiting:
            self._fibers.wake(fiber)
        if not self._tells:
            self._tells = True
            self._fibers.later(0.0, self._tell)

    def _tell(self) -> None:
        self._tells = False
        self._told()


class Event:
    """In the place of threading.Event."""

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers
        self._set = False
        self._waiting: list[Fiber] = []

    def is_set(self) -> bool:
        """Whether it was set."""
        return self._set

    def set(self) -> None:
        """Set it, and wake everybody."""
        self._set = True
        for fiber in self._waiting:
            self._fibers.wake(fiber)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set."""
        if not self._set:
            fiber = self._fibers.current
            self._waiting.append(fiber)
            try:
                self._fibers.park(timeout)
            finally:
                self._waiting.remove(fiber)
        return self._set


class Threading:
    """In the place of the module `threading`, for modules that have threads of their own."""

    Lock = staticmethod(threading.Lock)

    def __init__(self, fibers: Fibers) -> None:
        self._fibers = fibers

    def Event(self) -> Event:
        """An event."""
        return Event(self._fibers)

    def Thread(self, target: Callable[[], None], name: str = "", daemon: bool = False) -> Thread:
        """A thread that is not started yet."""
        return Thread(self._fibers, target)


class Thread:
    """In the place of threading.Thread."""

    def __init__(self, fibers: Fibers, target: Callable[[], None]) -> None:
        self._fibers, self._target = fibers, target
        self._fiber: Fiber | None = None

    def start(self) -> None:
        """Begin."""
        self._fiber = self._fibers.start(self._target)

    def is_alive(self) -> bool:
        """Whether it has not ended."""
        return self._fiber is not None and not self._fiber.over
