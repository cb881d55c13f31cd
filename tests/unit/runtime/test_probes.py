"""The end of a probe, whatever it has come to."""

from __future__ import annotations

import os
import signal
import socket
import threading

import pytest

from overspan.bridge.model.spec import Ready, ReadyKind
from overspan.bridge.runtime.core import readiness


def fork_waiter(own_group: bool) -> int:
    """A child that waits, as a probe that hangs; one that was just forked is in its parent's group."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(300)
        if own_group:
            os.setsid()
        os.close(writing)
        os.close(reading)
        while True:
            signal.pause()
    os.close(writing)
    # To the end of file: the child has come so far.
    os.read(reading, 1)
    os.close(reading)
    return pid


@pytest.mark.parametrize("own_group", [False, True])
def test_it_is_killed_before_it_has_a_group_of_its_own_too(own_group: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    statuses: list[int] = []
    wait = os.waitpid

    def note(pid: int, options: int) -> tuple[int, int]:
        done, status = wait(pid, options)
        statuses.append(status)
        return done, status

    pid = fork_waiter(own_group)
    monkeypatch.setattr(os, "waitpid", note)
    readiness._end(readiness._Trial(pid, 0.0))
    assert [os.WTERMSIG(status) for status in statuses] == [signal.SIGKILL]


def try_once(found: readiness.ReadinessProbes, now: float) -> list[tuple[str, int]]:
    """Begin a try and wait until it is over; gives what has become ready."""
    assert found.step(now) == []
    (trial,) = found._trials.values()
    os.waitid(os.P_PID, trial.pid, os.WEXITED | os.WNOWAIT)
    return found.step(now)


def watch(kind: ReadyKind, target: str, folder: str = "/") -> readiness.ReadinessProbes:
    found = readiness.ReadinessProbes()
    found.watch("s", 0, readiness.ProbeTarget(Ready(kind, target), "127.0.0.1", folder, {"PATH": "/usr/bin:/bin"}), 0.0)
    return found


@pytest.mark.parametrize(
    ("kind", "target", "text"),
    [
        (ReadyKind.FILE, "none", "it is not there"),
        (ReadyKind.COMMAND, "exit 7", "exit code 7"),
        (ReadyKind.COMMAND, "kill -9 $$", "signal 9"),
    ],
)
def test_a_try_tells_what_it_met(kind: ReadyKind, target: str, text: str) -> None:
    found = watch(kind, target)
    assert try_once(found, 0.0) == []
    assert found.news(0.0) == [readiness.ProbeAnswer("s", 0, 1, text)]
    found.forget("s", 0)
    assert found.news(1e9) == []


def serve(answer: bytes) -> int:
    """A server for one connection, in a thread that ends with it; its port."""
    server = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with server, server.accept()[0] as connection:
            connection.recv(1024)
            connection.sendall(answer)

    threading.Thread(target=run, daemon=True).start()
    return int(server.getsockname()[1])


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (b"HTTP/1.0 503 \x1b[31mNo\r\n\r\n", "HTTP status 503"),
        (b"\x1b]0;owned\x07 200\r\n", "no HTTP answer"),
        (b"HTTP/1.0 204 No Content\r\n\r\n", ""),
    ],
)
def test_a_server_is_told_by_its_status_and_never_by_its_words(answer: bytes, text: str) -> None:
    found = watch(ReadyKind.HTTP, f"{serve(answer)}/health")
    assert try_once(found, 0.0) == ([] if text else [("s", 0)])
    assert [one.text for one in found.news(0.0)] == ([text] if text else [])


def test_a_closed_port_refuses() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    found = watch(ReadyKind.TCP, str(port))
    assert try_once(found, 0.0) == []
    assert found.news(0.0) == [readiness.ProbeAnswer("s", 0, 1, "connection refused")]


def test_what_stays_the_same_is_told_ever_more_rarely_and_a_change_soon() -> None:
    tries = readiness._Tries(0.0, 0)
    told = []
    for second in range(3600):
        tries.count += 1
        tries.text = "no" if second < 1800 else "not yet"
        if tries.is_news(float(second)):
            tries.told_at, tries.told = float(second), tries.text
            told.append(second)
    assert told[:6] == [0, 10, 20, 40, 80, 160] and 1800 <= next(at for at in told if at >= 1800) < 1811
    assert len(told) < 20


def test_an_answer_that_flaps_is_told_every_ten_seconds_at_most() -> None:
    tries = readiness._Tries(0.0, 0)
    told = 0
    for second in range(600):
        tries.text = f"answer {second}"
        if tries.is_news(float(second)):
            tries.told_at, tries.told, told = float(second), tries.text, told + 1
    assert told == 60


def test_a_machine_short_of_processes_says_nothing_of_the_task(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> int:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(os, "fork", fail)
    found = watch(ReadyKind.FILE, "none")
    assert found.step(0.0) == [] and found.wake_at == 1.0
    assert [one.text for one in found.news(0.0)] == ["cannot try: Resource temporarily unavailable"]
