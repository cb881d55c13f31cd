"""Questions to the daemon: a thread for each kind, the newest one alone; answers that come too late are dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from overspan.bridge.model.errors import OverspanError
from overspan.tui.daemon.source import OpenSource, Source

T = TypeVar("T")
Deliver = Callable[[Callable[[], None]], object]
"""Calls a function in the thread of the application; safe from any thread."""
ORDERS = "orders"
"""The kind of questions that are all asked, one after another, those too that still wait when the application ends."""


def ask_safely(ask: Callable[[], T]) -> T | OverspanError:
    """The answer, or the error in its place."""
    try:
        return ask()
    except OverspanError as error:
        return error
    except Exception as error:
        # A thread that ended here would leave the application waiting without a word.
        return OverspanError(f"the daemon's answer cannot be read: {error!r}")


class _Question(NamedTuple):
    number: int
    ask: Callable[[Source], Any]
    take: Callable[[Any], None]
    fail: Callable[[OverspanError], None]


class _Asker:
    """The thread of one kind of question."""

    def __init__(self, open_source: OpenSource, deliver: Deliver, ready: threading.Event | None, keep_all: bool):
        self._open_source = open_source
        self._deliver = deliver
        self._may_ask = ready
        self._keep_all = keep_all
        self._ready = threading.Condition()
        self._waiting: list[_Question] = []
        self._newest = 0
        self._closed = False
        # The process does not end before an order was given: it would be lost without a word.
        threading.Thread(target=self._run, daemon=not keep_all).start()

    def put(
        self, ask: Callable[[Source], Any], take: Callable[[Any], None], fail: Callable[[OverspanError], None]
    ) -> None:
        with self._ready:
            self._newest += 1
            question = _Question(self._newest, ask, take, fail)
            self._waiting = [*self._waiting, question] if self._keep_all else [question]
            self._ready.notify()

    def close(self) -> None:
        with self._ready:
            self._closed = True
            self._ready.notify()

    def _run(self) -> None:
        if self._may_ask is not None:
            self._may_ask.wait()
        source = self._open_source()
        # A daemon that was ended stays so: only the feed starts one.
        source.autostart = False
        while (question := self._next()) is not None:
            self._answer(question, source)
        source.close()

    def _next(self) -> _Question | None:
        with self._ready:
            while not self._waiting and not self._closed:
                self._ready.wait()
            return self._waiting.pop(0) if self._waiting and (self._keep_all or not self._closed) else None

    def _answer(self, question: _Question, source: Source) -> None:
        answer = ask_safely(lambda: question.ask(source))
        self._give(question, question.fail if isinstance(answer, OverspanError) else question.take, answer)

    def _give(self, question: _Question, to: Callable[[Any], None], value: object) -> None:
        def give() -> None:
            if not self._closed and (self._keep_all or question.number == self._newest):
                to(value)

        try:
            self._deliver(give)
        except RuntimeError:
            # The application's event loop has ended.
            self.close()


class Questions:
    """All kinds; each has a connection of its own, so that a slow one delays no other.

    None is asked before `ready`: the feed's first question may still be starting the daemon.
    """

    def __init__(self, open_source: OpenSource, deliver: Deliver, ready: threading.Event | None = None) -> None:
        self._open_source = open_source
        self._deliver = deliver
        self._ready = ready
        self._askers: dict[str, _Asker] = {}

    def ask(
        self, kind: str, ask: Callable[[Source], T], take: Callable[[T], None], fail: Callable[[OverspanError], None]
    ) -> None:
        """Ask in the background; `take` or `fail` is called in the application's thread, unless a newer one was asked.

        Questions of the kind `orders` are all asked, one after another, and all answered.
        """
        if kind not in self._askers:
            self._askers[kind] = _Asker(self._open_source, self._deliver, self._ready, kind == ORDERS)
        self._askers[kind].put(ask, take, fail)

    def close(self) -> None:
        """Answer nothing any more; orders that wait are still given."""
        for asker in self._askers.values():
            asker.close()
