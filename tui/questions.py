"""Questions to the daemon: a thread for each kind, the newest one alone; answers that come too late are dropped."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from overspan.bridge.model.errors import OverspanError
from overspan.tui.source import OpenSource, Source

T = TypeVar("T")
Deliver = Callable[[Callable[[], None]], object]
"""Calls a function in the thread of the application; safe from any thread."""


class _Question(NamedTuple):
    number: int
    ask: Callable[[Source], Any]
    take: Callable[[Any], None]
    fail: Callable[[OverspanError], None]


class _Asker:
    """The thread of one kind of question."""

    def __init__(self, open_source: OpenSource, deliver: Deliver, keep_all: bool) -> None:
        self._open_source = open_source
        self._deliver = deliver
        self._keep_all = keep_all
        self._ready = threading.Condition()
        self._waiting: list[_Question] = []
        self._newest = 0
        self._closed = False
        threading.Thread(target=self._run, daemon=True).start()

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
            self._waiting.clear()
            self._ready.notify()

    def _run(self) -> None:
        source = self._open_source()
        while (question := self._next()) is not None:
            try:
                answer = question.ask(source)
            except OverspanError as error:
                self._give(question, question.fail, error)
            else:
                self._give(question, question.take, answer)
        source.close()

    def _next(self) -> _Question | None:
        with self._ready:
            while not self._waiting and not self._closed:
                self._ready.wait()
            return None if self._closed else self._waiting.pop(0)

    def _give(self, question: _Question, to: Callable[[Any], None], value: object) -> None:
        def give() -> None:
            if not self._closed and (self._keep_all or question.number == self._newest):
                to(value)

        self._deliver(give)


class Questions:
    """All kinds; each has a connection of its own, so that a slow one delays no other."""

    def __init__(self, open_source: OpenSource, deliver: Deliver) -> None:
        self._open_source = open_source
        self._deliver = deliver
        self._askers: dict[str, _Asker] = {}

    def ask(
        self, kind: str, ask: Callable[[Source], T], take: Callable[[T], None], fail: Callable[[OverspanError], None]
    ) -> None:
        """Ask in the background; `take` or `fail` is called in the application's thread, unless a newer one was asked.

        Questions of the kind `orders` are all asked, one after another, and all answered.
        """
        if kind not in self._askers:
            self._askers[kind] = _Asker(self._open_source, self._deliver, kind == "orders")
        self._askers[kind].put(ask, take, fail)

    def close(self) -> None:
        """Answer nothing any more."""
        for asker in self._askers.values():
            asker.close()
