"""The worker's exchanges: what may not have been heard is told again, before what has come since."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
from tests.waiting import WaitUntil

from overspan.bridge.runtime.pool import exchanges
from overspan.bridge.runtime.pool.exchanges import Exchanges

EMPTY: dict[str, Any] = {"root": "/", "leases": {}, "orders": {}, "places": {}, "drop": []}
Answer = Callable[[dict[str, Any]], dict[str, Any]]


class Daemon:
    """A daemon that answers by a function; notes what it was told, and what it was asked for news."""

    def __init__(self) -> None:
        self.told: list[dict[str, Any]] = []
        self.asked: list[float] = []
        self.answer: Answer = lambda message: EMPTY
        self.gate = threading.Event()

    def open(self, name: str) -> Daemon:
        return self

    def post(self, path: str, message: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        return EMPTY

    def close(self) -> None:
        return

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        if not message["journals"]:
            self.asked.append(message["wait"])
            if message["wait"]:
                self.gate.wait(10)
                self.gate.clear()
            return EMPTY
        self.told.append(message["journals"])
        return self.answer(message)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> Daemon:
    made = Daemon()
    monkeypatch.setattr(exchanges, "_FIRST_PAUSE", 0.01)
    monkeypatch.setattr(exchanges, "GATHER_SECONDS", 0.0)
    return made


@pytest.fixture
def worker(daemon: Daemon) -> Exchanges:
    made = Exchanges(daemon, {"job": 1, "word": "w"}, lambda: None)
    # Its main thread carries out each answer at once.
    made._wake = lambda: made.give({}, {})
    return made


def test_what_was_not_heard_is_told_again_before_what_came_since(
    daemon: Daemon, worker: Exchanges, wait_until: WaitUntil
) -> None:
    def fail(message: dict[str, Any]) -> dict[str, Any]:
        daemon.answer = lambda message: EMPTY
        worker.give({}, {"1.0": (4, b"more\n")})
        raise OSError("no answer")

    daemon.answer = fail
    worker.start()
    worker.give({}, {"1.0": (0, b"one\n")})
    wait_until(lambda: len(daemon.told) == 2)
    assert daemon.told[1] == {"1.0": {"offset": 0, "text": "one\nmore\n"}}
    worker.stop()
    daemon.gate.set()


def test_after_a_silence_one_question_does_not_wait(daemon: Daemon, worker: Exchanges, wait_until: WaitUntil) -> None:
    worker.start()
    wait_until(lambda: daemon.asked == [0.0, exchanges.WAIT_SECONDS])
    daemon.gate.set()
    wait_until(lambda: daemon.asked[2:] == [0.0, exchanges.WAIT_SECONDS])
    worker.stop()
    daemon.gate.set()


def test_growths_that_do_not_meet_are_not_joined() -> None:
    assert exchanges._join((0, b"ab"), (2, b"cd")) == (0, b"abcd")
    assert exchanges._join((0, b"ab"), (3, b"d")) == (3, b"d")
    assert exchanges._join(None, (3, b"d")) == (3, b"d")


def test_what_a_worker_has_gathered_while_the_daemon_was_away_is_told_in_parts(
    daemon: Daemon, worker: Exchanges, wait_until: WaitUntil, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchanges, "MOST_BYTES", 10)
    worker.give({}, {"1.0": (0, b"one\ntwo\nthree\n"), "2.0": (7, b"a line of its own\n"), "3.0": (0, b"x\n")})
    worker.start()
    wait_until(lambda: len(daemon.told) == 4)
    assert daemon.told == [
        {"1.0": {"offset": 0, "text": "one\ntwo\n"}},
        {"1.0": {"offset": 8, "text": "three\n"}},
        {"2.0": {"offset": 7, "text": "a line of its own\n"}},
        {"3.0": {"offset": 0, "text": "x\n"}},
    ]
    worker.stop()
    daemon.gate.set()
