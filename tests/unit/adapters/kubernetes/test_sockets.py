"""Every connection has one owner that closes it, whenever the server goes and whenever somebody stops waiting."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import select
import socket
import ssl
import struct
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.unit.adapters.kubernetes.bench import INSTALLATION, Bench, read_log_request, solo
from tests.waiting import wait_until

from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.api.sockets import own_sockets
from overspan.adapters.kubernetes.cluster import KubernetesCluster
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError, Unreachable

OURS = ("kubernetes", "watch", "log of", "exec", "asyncio")
"""How the names of threads begin that may still have a connection."""


@contextlib.contextmanager
def list_dropped() -> Iterator[list[str]]:
    """What is dropped without being closed, until the block ends."""
    dropped: list[str] = []
    before = sys.unraisablehook
    sys.unraisablehook = lambda found: dropped.append(f"{found.exc_value!r}")
    try:
        yield dropped
        gc.collect()
    finally:
        sys.unraisablehook = before


@pytest.fixture
def rude() -> Iterator[int]:
    """The port of a server that resets each connection as soon as it has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    # Closing with no time to linger is a reset (socket(7)).
                    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                    connection.close()

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        with contextlib.suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
    thread.join(10)


def await_reset(connection: socket.socket) -> socket.socket:
    """Go on when the other side has reset the connection."""
    look = select.poll()
    look.register(connection, select.POLLHUP | select.POLLERR)
    assert look.poll(10_000)
    return connection


def test_a_server_that_goes_before_the_handshake_leaves_no_socket(rude: int) -> None:
    context = own_sockets(ssl.create_default_context())
    with list_dropped() as dropped:
        connection = await_reset(socket.create_connection(("127.0.0.1", rude)))
        with pytest.raises(ConnectionResetError):
            context.wrap_socket(connection, server_hostname="localhost")
        connection.close()
    assert dropped == []


@pytest.mark.parametrize("way", ["request", "stream", "exec", "lane"])
def test_no_way_to_the_server_drops_a_socket_that_was_reset(
    rude: int, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect = socket.socket.connect

    def connect_late(self: socket.socket, address: Any) -> None:
        connect(self, address)
        if address[1] == rude:
            await_reset(self)

    monkeypatch.setattr(socket.socket, "connect", connect_late)
    config = tmp_path / "kubeconfig"
    clusters = f'[{{"name": "x", "cluster": {{"server": "https://127.0.0.1:{rude}"}}}}]'
    contexts = '[{"name": "x", "context": {"cluster": "x", "user": "x"}}]'
    users = '[{"name": "x", "user": {"token": "t"}}]'
    config.write_text(f'{{"clusters": {clusters}, "contexts": {contexts}, "users": {users}, "current-context": "x"}}')
    opened = open_connection(Settings(kubeconfig=str(config)))

    def use() -> None:
        if way == "request":
            opened.request("GET", "/version")
        elif way == "stream":
            opened.stream("/version")
        elif way == "exec":
            opened.exec("default", "pod", "main", ["true"])
        else:
            with opened.thread_connection() as own_connection:
                assert own_connection is None
            raise Unreachable("no lane")

    with list_dropped() as dropped:
        with pytest.raises(Unreachable):
            use()
        opened.close()
    assert dropped == []


def list_busy() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith(OURS[:4])]


async def observe(cluster: KubernetesCluster, handle: str) -> None:
    await cluster.observe({handle: ""}, 5)


async def read_log(cluster: KubernetesCluster, handle: str) -> None:
    await cluster.logs(read_log_request(handle, "main"))


async def let_go(cluster: KubernetesCluster, handle: str) -> None:
    await cluster.release(INSTALLATION, (), ())


async def look(cluster: KubernetesCluster, handle: str) -> None:
    await cluster.nodes()


@pytest.mark.parametrize("work", [observe, read_log, let_go, look])
@pytest.mark.parametrize("turns", [1, 3, 10, 40])
def test_whoever_stops_waiting_for_a_late_server_leaves_no_connection(
    bench: Bench, work: Callable[[KubernetesCluster, str], Any], turns: int
) -> None:
    async def story() -> None:
        async with bench.open() as cluster:
            handle = await bench.start(cluster, solo("sleep 60"))
        late = bench.open()
        cluster = await late.__aenter__()
        held = bench.api.hold("GET", "", times=50)
        task = asyncio.ensure_future(work(cluster, handle))
        for _ in range(turns):
            await asyncio.sleep(0.001)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, OverspanError):
            await task
        closing = asyncio.ensure_future(late.__aexit__(None, None, None))
        await asyncio.sleep(0.01)
        # It answers when nobody waits any more.
        held.free.set()
        bench.api.faults.clear()
        await closing

    with list_dropped() as dropped:
        asyncio.run(story())
        wait_until(lambda: not list_busy(), 30, "all threads to end")
    assert dropped == []


def test_a_stream_that_comes_after_the_end_is_closed(api: KubernetesApi, connection: Connection) -> None:
    held = api.hold("GET", "/pods")
    failed: list[Exception] = []

    def follow() -> None:
        try:
            connection.stream("/api/v1/namespaces/default/pods", {"watch": "1"})
        except OverspanError as error:
            failed.append(error)

    with list_dropped() as dropped:
        thread = threading.Thread(target=follow)
        thread.start()
        assert held.met.wait(10)
        connection.close()
        held.free.set()
        thread.join(10)
    assert dropped == [] and "was closed" in str(failed[0])


def test_a_stream_that_is_read_ends_with_its_connection(api: KubernetesApi, connection: Connection) -> None:
    stream = connection.stream("/api/v1/namespaces/default/pods", {"watch": "1", "timeoutSeconds": 300})
    done = threading.Event()

    def read() -> None:
        with contextlib.suppress(OverspanError):
            for _ in stream:
                pass
        done.set()

    with list_dropped() as dropped:
        threading.Thread(target=read, daemon=True).start()
        connection.close()
        assert done.wait(10)
    assert dropped == []
