"""Pools of threads that all run from the start, for a server that has to answer as long as its program lives."""

from __future__ import annotations

import errno
import threading
from concurrent.futures import ThreadPoolExecutor


def open_pool(count: int) -> ThreadPoolExecutor:
    """A pool whose threads run: so a limit of the user's or the task's is met here, and not at a program's read.

    Raises OSError where no more threads are allowed.
    """
    pool = ThreadPoolExecutor(count)
    barrier = threading.Barrier(count + 1)
    try:
        for _ in range(count):
            # Each keeps its thread, so the next one needs another.
            pool.submit(barrier.wait)
    except RuntimeError as error:
        barrier.abort()
        pool.shutdown()
        raise OSError(errno.EAGAIN, f"its server needs {count} threads: {error}") from None
    barrier.wait()
    return pool
