"""Tunnels for jobs, between two processes of this machine: one stands for the cluster's side."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest

from overspan.bridge.config.settings import ClusterSettings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.features import tunnels
from overspan.bridge.controller.features.tunnels import Tunnels
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.spec import Backoff

WAIT = 30.0


def find_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port


@dataclass
class Far:
    """What runs python3 on the cluster's side; `trouble` is why it cannot."""

    trouble: str = ""
    asked: int = 0
    words: list[Sequence[str]] = field(default_factory=list)

    async def remote_python(self, words: Sequence[str], address: str) -> Sequence[str]:
        assert address.endswith(f":{words[-1]}")
        self.asked += 1
        if self.trouble:
            raise Unreachable(self.trouble)
        self.words.append(words)
        return [sys.executable, "-I", *words]


def join(far: Far | None, port: int, target: int | None, *, shared: bool = False) -> Tunnels:
    traits = SimpleNamespace(remote_python=far.remote_python if far else None)
    cluster = SimpleNamespace(open=lambda: SimpleNamespace(traits=traits))
    clusters = cast(Clusters, SimpleNamespace(get=lambda name: cluster))
    settings = {
        "far": ClusterSettings(daemon_address=f"login:{port}", daemon_tunnel=True),
        "near": ClusterSettings(daemon_address="here"),
    }
    return Tunnels(clusters, settings, target, shared=shared)


async def await_word(found: Tunnels, word: str) -> None:
    async with asyncio.timeout(WAIT):
        while word not in found.check("far")[0].seen:
            await asyncio.sleep(0.01)


async def ask(port: int) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"ask\n")
    answer = await asyncio.wait_for(reader.readline(), WAIT)
    writer.close()
    return answer


@asynccontextmanager
async def listen() -> AsyncIterator[int]:
    """The daemon's port for jobs."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"told " + await reader.readline())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(answer, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1]


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunnels, "AGAIN", Backoff(first=0.01, factor=1.0, limit=0.01, jitter=0.0))


def run(story: Any) -> None:
    async def play() -> None:
        async with asyncio.timeout(4 * WAIT):
            await story()

    asyncio.run(play())


def test_what_connects_to_the_far_port_reaches_the_daemon_and_breaks_are_mended() -> None:
    async def story() -> None:
        far, port = Far(), find_port()
        async with listen() as target:
            found = join(far, port, target)
            assert found.check("near") == []
            assert found.check("far")[0].seen == "it is not open yet"
            found.start()
            try:
                await await_word(found, "leads to this daemon")
                assert await ask(port) == b"told ask\n"
                for who in (b"listen", b"connect"):
                    asked = far.asked
                    os.kill(find_process(who, str(port if who == b"listen" else target)), signal.SIGKILL)
                    async with asyncio.timeout(WAIT):
                        while far.asked == asked:
                            await asyncio.sleep(0.01)
                    await await_word(found, "leads to this daemon")
                    assert await ask(port) == b"told ask\n"
            finally:
                await found.close()
            with pytest.raises(ConnectionRefusedError):
                await ask(port)

    run(story)


def find_process(role: bytes, port: str) -> int:
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if role in words and words[words.index(role) + 1] == port.encode():
            return int(name)
    raise AssertionError(f"no process {role!r} {port}")


def test_what_keeps_it_closed_is_told_until_it_opens() -> None:
    async def story() -> None:
        far, port = Far("login: Permission denied"), find_port()
        async with listen() as target:
            found = join(far, port, target)
            with socket.create_server(("", port)):
                found.start()
                try:
                    await await_word(found, "Permission denied")
                    far.trouble = ""
                    await await_word(found, f"port {port}: Address already in use")
                    assert not found.check("far")[0].works
                except BaseException:
                    await found.close()
                    raise
            try:
                await await_word(found, "leads to this daemon")
            finally:
                await found.close()

    run(story)


def test_a_fault_of_one_try_ends_no_tunnel(caplog: pytest.LogCaptureFixture) -> None:
    class Faulty(Far):
        async def remote_python(self, words: Sequence[str], address: str) -> Sequence[str]:
            if not self.asked:
                self.asked += 1
                raise ZeroDivisionError
            return await super().remote_python(words, address)

    async def story() -> None:
        port = find_port()
        async with listen() as target:
            found = join(Faulty(), port, target)
            found.start()
            try:
                await await_word(found, "leads to this daemon")
            finally:
                await found.close()

    run(story)
    assert "ZeroDivisionError" in caplog.text


@pytest.mark.parametrize(
    ("far", "target", "shared", "told"),
    [
        (None, 1, False, "no connection that could carry it"),
        (Far(), None, False, "port for jobs is not open"),
        (Far(), 1, True, "a shared daemon"),
    ],
)
def test_a_tunnel_that_can_never_be_is_told(far: Far | None, target: int | None, shared: bool, told: str) -> None:
    async def story() -> None:
        found = join(far, 7433, target, shared=shared)
        found.start()
        (finding,) = found.check("far")
        assert not finding.works and told in finding.seen
        await found.close()
        assert far is None or not far.asked

    run(story)
