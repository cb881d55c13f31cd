"""Wake-ups between coroutines of one event loop."""

from __future__ import annotations

import asyncio


class Wakeup:
    """A condition without a lock: `wake` wakes every waiter.

    To miss no wake-up, check and then wait without an await in between; or note `count` before the check and pass it as
    `seen`.
    """

    def __init__(self) -> None:
        self.count = 0
        self._waiting: set[asyncio.Future[None]] = set()

    def wake(self) -> None:
        """Wake all waiters."""
        self.count += 1
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def wait(self, timeout: float | None = None, seen: int | None = None) -> bool:
        """Wait for the next wake-up, or for one after the count `seen`, at most `timeout` seconds; whether it came."""
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
        """Whether there are no waiters."""
        return not self._waiting


class JobWakeups:
    """A wake-up for each job that has waiters."""

    def __init__(self) -> None:
        self._wakeups: dict[int, Wakeup] = {}

    def wake(self, job_id: int) -> None:
        """Wake the waiters of one job."""
        wakeup = self._wakeups.get(job_id)
        if wakeup is not None:
            wakeup.wake()

    def wake_all(self) -> None:
        """Wake the waiters of all jobs, for the end of the daemon."""
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
