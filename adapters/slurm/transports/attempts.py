"""When a connection that could not be opened is tried again, however many ask for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable

from overspan.bridge.model.errors import Unreachable

FIRST_WAIT = 1.0
LONGEST_WAIT = 5.0
"""Seconds between two tries. Those who ask wait longer than this by themselves, so one who asks is seldom put off."""
LONGEST_REFUSED = 60.0
"""The same where the host has answered and let nobody in: hosts shut out those who come again and again."""
_REFUSED = re.compile(r"Permission denied|[Aa]uthentication|Host key|host key|not found in known_hosts")


class Attempts:
    """Counts tries to open one connection. Times are of `clock`, seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures = 0
        self._next = 0.0
        self._trouble = ""

    def check(self) -> None:
        """Raise Unreachable, with what the last try came to, where it is too early for another."""
        if self._failures and self._clock() < self._next:
            raise Unreachable(self._trouble)

    def succeed(self) -> None:
        """It is open."""
        self._failures = 0

    def fail(self, trouble: str) -> None:
        """A try has failed, for that reason."""
        longest = LONGEST_REFUSED if _REFUSED.search(trouble) else LONGEST_WAIT
        self._trouble = trouble
        self._next = self._clock() + min(FIRST_WAIT * 2.0 ** min(self._failures, 10), longest)
        self._failures += 1
