"""Wait for a fact with a deadline: the only way in which a test may wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol, TypeVar

T = TypeVar("T")

PATIENCE = 6.0
"""Every wait is so many times longer than its test says: a slow machine is no failure."""


class WaitUntil(Protocol):
    """The type of the `wait_until` fixture."""

    def __call__(self, predicate: Callable[[], T], timeout: float = ..., what: str = ...) -> T: ...


def wait_until(predicate: Callable[[], T], timeout: float = 10.0, what: str = "") -> T:
    """Call `predicate` until it gives something true, and give that; AssertionError when the patience is over."""
    deadline = time.monotonic() + PATIENCE * timeout
    pause = 0.001
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {timeout:g} s: {what or predicate!r}")
        time.sleep(pause)
        pause = min(pause * 2, 0.05)
