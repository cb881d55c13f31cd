"""Logins by programs, which may wait for somebody who is not there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Any, TypeVar, cast

from overspan.bridge.model.errors import Unreachable

T = TypeVar("T")

_LATE = "the login to the cluster takes too long: its plug-in may wait for somebody"
_REMEDY = "log in by hand where it runs, and try `kubectl cluster-info`"


class TimeLimit:
    """Runs one thing at a time in a thread of its own, and waits for it `seconds` at most. Not for several threads."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._late: Future[Any] | None = None

    def run(self, function: Callable[[], T]) -> T:
        """What it gives or raises; Unreachable when it takes too long, and at once while that goes on."""
        if self._late is not None and not self._late.done():
            raise Unreachable(_LATE, remedy=_REMEDY)
        done: Future[Any] = Future()
        self._late = done

        def carry_out() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=carry_out, name="kubernetes login", daemon=True).start()
        try:
            return cast(T, done.result(self._seconds))
        except FutureTimeout:
            raise Unreachable(_LATE, remedy=_REMEDY) from None
