"""An object store for tests: moto's server, a process of its own, reached through a proxy that can be cut."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.clients.installed import install

from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.object_store import ObjectStoreError
from overspan.bridge.runtime.data.s3 import S3Store

START_SECONDS = 60.0
SECRET = "testing-secret"
"""What no file of a job, no answer and no log may have."""


_EXPIRED_BODY = b"<Error><Code>ExpiredToken</Code><Message>The provided token has expired.</Message></Error>"
_EXPIRED = (
    b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: application/xml\r\ncontent-length: %d\r\n\r\n%s"
    % (len(_EXPIRED_BODY), _EXPIRED_BODY)
)


class Proxy:
    """Passes connections on to a server, as long as it is not cut."""

    def __init__(self, port: int, address: str = "127.0.0.1") -> None:
        self._target = port
        self._address = address
        self._cut = False
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener = socket.create_server((address, 0))
        self.port: int = self._listener.getsockname()[1]
        self.delay = 0.0
        """Seconds for which each piece of a request waits."""
        self.passed = 0
        """Bytes of requests that were passed on."""
        self.passed_back = 0
        """Bytes of answers that were."""
        self.refused_key = ""
        """An access key that does not count: requests with it are answered here."""
        self.refused = 0
        """How many were."""
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Refuse connections from now on, and break those that are open."""
        self._cut = True
        with self._lock:
            for each in self._open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def mend(self) -> None:
        """Pass connections on again."""
        self._cut = False

    @property
    def endpoint(self) -> str:
        """Its URL."""
        return f"http://{self._address}:{self.port}"

    def close(self) -> None:
        """End it."""
        self.cut()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self._cut:
                client.close()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
            for source, sink, counted in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=(source, sink, counted), daemon=True).start()

    def _pump(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        try:
            while data := source.recv(65536):
                if counted and self.refused_key and f"Credential={self.refused_key}/".encode() in data:
                    self.refused += 1
                    source.sendall(_EXPIRED)
                    while source.recv(65536):
                        pass
                    return
                if counted:
                    time.sleep(self.delay)
                    self.passed += len(data)
                else:
                    self.passed_back += len(data)
                sink.sendall(data)
        except OSError:
            pass
        finally:
            for each in (source, sink):
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)
            with self._lock:
                self._open.discard(source)
            source.close()


class TestStore:
    """A store that runs: where it is, and what is in it."""

    __test__ = False

    def __init__(self, port: int, address: str) -> None:
        self.proxy = Proxy(port, address)
        self._opened: dict[str, S3Store] = {}
        self.direct = f"http://127.0.0.1:{port}"
        """Its URL, past the proxy."""

    @property
    def endpoint(self) -> str:
        """Its URL, by way of the proxy."""
        return self.proxy.endpoint

    def access(self, name: str = "s3", **fields: str) -> StoreAccess:
        """How it is reached, by way of the proxy."""
        return StoreAccess(name, self.endpoint, **{"access_key": "testing", "secret_key": "testing-secret", **fields})

    def open(self, bucket: str) -> S3Store:
        """One of its buckets, past the proxy; closed with the store."""
        access = StoreAccess("direct", self.direct, access_key="testing", secret_key="testing-secret")
        if bucket not in self._opened:
            self._opened[bucket] = S3Store(access, bucket)
        return self._opened[bucket]

    def close(self) -> None:
        """Close all connections."""
        self.proxy.close()
        for each in self._opened.values():
            each.close()

    def make_bucket(self, name: str) -> S3Store:
        """A bucket that is empty."""
        bucket = self.open(name)
        bucket.make_bucket()
        return bucket

    def texts(self, bucket: str, prefix: str = "") -> dict[str, bytes]:
        """The content of a bucket's objects, by key."""
        opened = self.open(bucket)
        found = {}
        for stored in list(opened.list_objects(prefix)):
            reader = opened.open(stored.key)
            found[stored.key] = reader._store.read(reader._response)
        return found


@contextlib.contextmanager
def lend_bucket(store: TestStore, name: str = "lab") -> Iterator[TestStore]:
    """The store with an empty bucket, whole before and afterwards."""
    store.proxy.mend()
    bucket = store.make_bucket(name)
    for stored in list(bucket.list_objects("")):
        bucket.delete(stored.key)
    yield store
    store.proxy.mend()
    store.proxy.delay = 0.0
    store.proxy.refused_key = ""


def configure_store(store: TestStore, folder: Path) -> dict[str, Any]:
    """The configuration's `stores` for it, with its credentials in a file of that folder."""
    credentials = write_credentials(folder, "testing")
    return {"s3": {"endpoint": store.endpoint, "credentials": {"file": str(credentials)}}}


def write_credentials(folder: Path, key: str) -> Path:
    """The file of credentials in a folder, with that access key from now on."""
    fresh, path = folder / "credentials.new", folder / "credentials"
    fresh.write_text(f"[default]\naws_access_key_id = {key}\naws_secret_access_key = {SECRET}\n")
    fresh.chmod(0o600)
    return fresh.replace(path)


@contextlib.contextmanager
def run_store(folder: Path, address: str = "127.0.0.1") -> Iterator[TestStore]:
    """moto's server on a free port, reached at an address of this machine.

    The test is skipped where it cannot be installed.
    """
    program = install("moto") / "moto_server"
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with open(folder / "moto.log", "w") as log:
        server = subprocess.Popen([program, "-H", "127.0.0.1", "-p", str(port)], stdout=log, stderr=log)
    store = TestStore(port, address)
    try:
        await_store(store, server, folder / "moto.log")
        yield store
    finally:
        store.close()
        server.terminate()
        server.wait(20)


def await_store(store: TestStore, server: subprocess.Popen[bytes], log: Path) -> None:
    """Wait until a store answers. Fails with the end of its log."""
    deadline = time.monotonic() + START_SECONDS
    while True:
        try:
            store.make_bucket("first")
            return
        except ObjectStoreError:
            assert server.poll() is None and time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)
