"""The worker's connection: answers of any pieces, and a daemon that closes what was idle."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from overspan.bridge.runtime.pool.connection import DaemonAddress, DaemonConnection, Dismissed

MESSAGE = {"job": 1, "word": "w", "held": {}, "journals": {}, "wait": 0.0}
Serve = Callable[[list[list[bytes]]], DaemonConnection]


def answer(document: object, status: int = 200, more: str = "") -> bytes:
    """An answer as the daemon sends it."""
    data = json.dumps(document).encode()
    return f"HTTP/1.1 {status} x\r\nserver: s\r\nContent-Length: {len(data)}\r\n{more}\r\n".encode() + data


class Daemon:
    """Accepts one connection after another, and sends each its answers in pieces; then it closes it."""

    def __init__(self, path: Path, lives: list[list[bytes]]) -> None:
        self.heard: list[bytes] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(5)
        self._thread = threading.Thread(target=self._serve, args=(lives,), daemon=True)
        self._thread.start()

    def _serve(self, lives: list[list[bytes]]) -> None:
        for answers in lives:
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                # Nobody has come: the test says so.
                return
            with connection:
                for each in answers:
                    self.heard.append(connection.recv(65536))
                    for place in range(0, len(each), 7):
                        connection.sendall(each[place : place + 7])

    def close(self) -> None:
        self._thread.join(10)
        self._listener.close()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Serve]:
    made: list[Daemon | DaemonConnection] = []

    def begin(lives: list[list[bytes]]) -> DaemonConnection:
        connection = DaemonConnection(DaemonAddress("socket", str(tmp_path / "s")))
        made.extend((Daemon(tmp_path / "s", lives), connection))
        return connection

    yield begin
    for each in made:
        each.close()


def test_one_connection_has_many_exchanges(serve: Serve) -> None:
    connection = serve([[answer({"a": 1}), answer({"b": "ü" * 100})]])
    assert connection.exchange(MESSAGE) == {"a": 1}
    assert connection.exchange(MESSAGE) == {"b": "ü" * 100}


def test_a_connection_that_was_closed_while_it_was_idle_costs_no_pause(serve: Serve) -> None:
    connection = serve([[answer({"a": 1})], [answer({"a": 2}, more="Connection: close\r\n")], [answer({"a": 3})]])
    assert [connection.exchange(MESSAGE)["a"] for _ in range(3)] == [1, 2, 3]


def test_what_is_no_answer_is_an_error_and_the_next_exchange_is_a_new_one(serve: Serve) -> None:
    cut = answer({"a": 1})[:-2]
    connection = serve([[cut], [b"HTTP/1.1 200 OK\r\nserver"], [b"SSH-2.0\r\n"], [b""], [answer({"a": 2})]])
    for _ in range(4):
        with pytest.raises(OSError, match="the daemon does not answer"):
            connection.exchange(MESSAGE)
    assert connection.exchange(MESSAGE) == {"a": 2}


def test_refusals_are_told_apart(serve: Serve) -> None:
    refused = {"error": {"message": "no worker any more"}}
    connection = serve([[answer(refused, 500), answer(refused, 403), answer({"a": 1})]])
    with pytest.raises(OSError, match="the daemon answered 500: no worker any more"):
        connection.exchange(MESSAGE)
    with pytest.raises(Dismissed, match="no worker any more"):
        connection.exchange(MESSAGE)
    assert connection.exchange(MESSAGE) == {"a": 1}
