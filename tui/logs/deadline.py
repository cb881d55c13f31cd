"""A deadline for regular expressions, which hold the interpreter while they match.

CPython's matcher looks for signals every few thousand steps (Modules/_sre/sre_lib.h, MAYBE_CHECK_SIGNALS), and an
exception in a signal's handler ends it.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class TooSlow(Exception):
    """The deadline has passed."""


@contextmanager
def deadline(seconds: float) -> Iterator[None]:
    """Raise TooSlow in what runs longer. Only the main thread gets signals: TooSlow at once in any other."""
    if threading.current_thread() is not threading.main_thread():
        raise TooSlow
    former = signal.signal(signal.SIGALRM, _stop)
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, interval)


def _stop(number: int, frame: FrameType | None) -> None:
    raise TooSlow
