"""A tunnel of two processes that are joined by pipes, as ssh joins them."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from overspan.bridge.runtime.reach import tunnel

PROGRAM = tunnel.__file__
WAIT = 20.0


class Pair:
    """Both ends, and what keeps the near one alive."""

    def __init__(self, port: int, target: int) -> None:
        towards, back = os.pipe(), os.pipe()
        owned, self.owner = os.pipe()
        self.port = port
        words = [sys.executable, "-I", PROGRAM]
        pipe = subprocess.PIPE
        self.far = subprocess.Popen([*words, "listen", str(port)], stdin=towards[0], stdout=back[1], stderr=pipe)
        near = [*words, "connect", str(target), str(owned)]
        self.near = subprocess.Popen(near, stdin=back[0], stdout=towards[1], stderr=pipe, pass_fds=[owned])
        for fd in (*towards, *back, owned):
            os.close(fd)

    def wait_open(self) -> None:
        assert self.near.stderr is not None
        assert select.select([self.near.stderr], [], [], WAIT)[0]
        assert self.near.stderr.readline() == b"open\n"

    def dial(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self.port), WAIT)
        made.settimeout(WAIT)
        return made

    def close(self) -> None:
        if self.owner >= 0:
            os.close(self.owner)
            self.owner = -1
        for process in (self.near, self.far):
            process.wait(WAIT)
            assert process.stderr is not None
            process.stderr.close()


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def target() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(WAIT)
        yield listener


@contextmanager
def joined(target: int) -> Iterator[Pair]:
    pair = Pair(find_port(), target)
    try:
        pair.wait_open()
        yield pair
    finally:
        pair.close()


def accept(target: socket.socket) -> socket.socket:
    taken, _ = target.accept()
    taken.settimeout(WAIT)
    return taken


def read_all(opened: socket.socket) -> bytes:
    parts = []
    while data := opened.recv(65536):
        parts.append(data)
    return b"".join(parts)


def test_bytes_go_both_ways_and_an_end_is_passed_on(target: socket.socket) -> None:
    large = os.urandom(5 * tunnel.WINDOW + 17)
    with joined(target.getsockname()[1]) as pair, pair.dial() as client, accept(target) as server:

        def send() -> None:
            client.sendall(large)
            client.shutdown(socket.SHUT_WR)

        sending = threading.Thread(target=send)
        sending.start()
        assert read_all(server) == large
        sending.join(WAIT)
        server.sendall(large)
        server.shutdown(socket.SHUT_WR)
        assert read_all(client) == large


def test_a_slow_reader_holds_up_no_other(target: socket.socket) -> None:
    with joined(target.getsockname()[1]) as pair, pair.dial() as slow, accept(target) as writer:
        writer.setblocking(False)
        sent = 0
        # Until nothing more is taken: the window, and what the kernel keeps.
        while select.select([], [writer], [], 1.0)[1]:
            sent += writer.send(b"x" * 65536)
        assert sent >= tunnel.WINDOW
        with pair.dial() as quick, accept(target) as answer:
            quick.sendall(b"ask")
            assert answer.recv(10) == b"ask"
            answer.sendall(b"told")
            assert quick.recv(10) == b"told"
        writer.setblocking(True)
        writer.shutdown(socket.SHUT_WR)
        assert len(read_all(slow)) == sent


def test_a_connection_that_breaks_or_cannot_be_made_is_broken_at_the_other_end(target: socket.socket) -> None:
    with joined(target.getsockname()[1]) as pair, pair.dial() as client:
        server = accept(target)
        server.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        server.close()
        with pytest.raises(ConnectionResetError):
            client.sendall(b"x")
            while client.recv(10):
                pass
            raise ConnectionResetError
        target.close()
        with pair.dial() as other, pytest.raises(ConnectionResetError):
            if not other.recv(10):
                raise ConnectionResetError


def test_both_ends_end_with_the_owner(target: socket.socket) -> None:
    pair = Pair(find_port(), target.getsockname()[1])
    pair.wait_open()
    pair.close()
    assert (pair.near.returncode, pair.far.returncode) == (0, 0)
    with pytest.raises(ConnectionRefusedError):
        pair.dial()


def test_a_port_that_is_taken_is_said() -> None:
    with socket.create_server(("", 0)) as taken:
        pair = Pair(taken.getsockname()[1], 1)
        assert pair.far.wait(WAIT) == 1
        assert pair.far.stderr is not None
        assert b"Address already in use" in pair.far.stderr.read()
        # The other end sees the end of its pipe.
        assert pair.near.wait(WAIT) == 0
        pair.close()


def test_what_is_not_of_this_protocol_is_refused() -> None:
    words = [sys.executable, "-I", PROGRAM, "connect", "1", "3"]
    kept, owner = os.pipe()
    words[-1] = str(kept)
    pipe = subprocess.PIPE
    with subprocess.Popen(words, stdin=pipe, stdout=pipe, stderr=pipe, pass_fds=[kept]) as process:
        _, said = process.communicate(b"Last login: Mon Jan 1 00:00:00 from nowhere\n", timeout=WAIT)
    os.close(kept)
    os.close(owner)
    assert said == b"what the other end says is not of this protocol\n"
