"""Wake-ups between coroutines of one event loop."""

from __future__ import annotations

import asyncio


class Wakeup:
    """Wakes everybody who waits for it.

    Look first and wait then, with no await in between, and nothing is missed; else note `count` before looking.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Wake all who wait."""
        self.count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout: float | None = None, seen: int | None = None) -> bool:
        """Wait for the next ring, or for one after the count `seen`, at most `timeout` seconds; whether it rang."""
        if seen is not None and seen != self.count:
            return True
        future = asyncio.get_running_loop().create_future()
        self._waiting.add(future)
        try:
            await asyncio.wait((future,), timeout=timeout)
            return future.done()
        finally:
            self._waiting.discard(future)
            future.cancel()

    @property
    def idle(self) -> bool:
        """Whether nobody waits."""
        return not self._waiting


class JobWakeups:
    """A bell for each job that somebody waits for."""

    def __init__(self) -> None:
        self._wakeups: dict[int, Wakeup] = {}

    def wake(self, job_id: int) -> None:
        """Wake those who wait for that job."""
        wakeup = self._wakeups.get(job_id)
        if wakeup is not None:
            wakeup.wake()

    def wake_all(self) -> None:
        """Wake everybody, for the end of the daemon."""
        for wakeup in list(self._wakeups.values()):
            wakeup.wake()

    async def wait(self, job_id: int, timeout: float) -> bool:
        """Wait for the job's next change, at most `timeout` seconds; whether there was one."""
        wakeup = self._wakeups.setdefault(job_id, Wakeup())
        try:
            return await wakeup.wait(timeout)
        finally:
            if wakeup.idle and self._wakeups.get(job_id) is wakeup:
                del self._wakeups[job_id]
