"""Named arrays over HTTP: the small server and client that the five components share.

A request is a POST whose body is an npz archive of named arrays; so is the answer.
"""

from __future__ import annotations

import http.client
import io
import json
import signal
import socket
import socketserver
import sys
import threading
import time
import zipfile
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Route = Callable[[Arrays], Arrays]

START_PATIENCE = 30.0
"""Seconds to wait for a name to resolve, and for a peer to answer."""


class RefusedError(Exception):
    """The peer understood the request and declined it (HTTP 409)."""


class UnreachableError(Exception):
    """The peer did not answer within the caller's patience."""


def pack(arrays: Arrays) -> bytes:
    """Return the arrays as one npz archive."""
    buffer = io.BytesIO()
    members: dict[str, Any] = arrays
    np.savez(buffer, **members)
    return buffer.getvalue()


def unpack(body: bytes) -> Arrays:
    """Return the arrays of an npz archive; an empty body holds none."""
    if not body:
        return {}
    with np.load(io.BytesIO(body), allow_pickle=False) as archive:
        return dict(archive)


class ArrayServer(ThreadingHTTPServer):
    """Answers one request at a time, so that the routes need no locks of their own."""

    daemon_threads = True

    def __init__(self, host: str, port: int, routes: dict[str, Route]) -> None:
        self.routes = routes
        self.lock = threading.Lock()
        self.answered = 0
        super().__init__((host, port), RequestHandler)

    def server_bind(self) -> None:
        """Bind without HTTPServer's reverse look-up, which waits for a DNS server where there is none."""
        socketserver.TCPServer.server_bind(self)


class RequestHandler(BaseHTTPRequestHandler):
    """Keeps connections open, and sends each answer at once and in one piece."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1
    server: ArrayServer

    def do_GET(self) -> None:
        if self.path == "/health":
            self.answer(200, json.dumps({"answered": self.server.answered}).encode() + b"\n", "application/json")
        else:
            self.answer(404, b"GET knows /health only\n", "text/plain")

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        route = self.server.routes.get(self.path)
        if route is None:
            self.answer(404, f"no such path: {self.path}\n".encode(), "text/plain")
            return
        try:
            with self.server.lock:
                result = pack(route(unpack(body)))
                self.server.answered += 1
        except RefusedError as error:
            self.answer(409, f"{error}\n".encode(), "text/plain")
        except (LookupError, TypeError, ValueError, EOFError, zipfile.BadZipFile) as error:
            self.answer(400, f"bad request: {error!r}\n".encode(), "text/plain")
        else:
            self.answer(200, result, "application/octet-stream")

    def answer(self, status: int, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Stay silent: a line per request would drown the log."""


def serve(host: str, port: int, routes: dict[str, Route]) -> None:
    """Serve the routes until SIGTERM or SIGINT, then raise SystemExit(0)."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: sys.exit(0))
    with open_server(host, port, routes) as server:
        print(f"listening on {host}:{port}", flush=True)
        server.serve_forever()


def open_server(host: str, port: int, routes: dict[str, Route]) -> ArrayServer:
    """Bind to the host by name; in a cluster's DNS a new name may take a moment to appear."""
    deadline = time.monotonic() + START_PATIENCE
    while True:
        try:
            return ArrayServer(host, port, routes)
        except socket.gaierror:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


class Peer:
    """One server, called over one connection that is opened again when it breaks.

    A call is repeated until it is answered, `patience` seconds have passed or `stopped()` is true.
    A peer is for one thread at a time.
    """

    def __init__(
        self, address: str, patience: float = START_PATIENCE, stopped: Callable[[], bool] = lambda: False
    ) -> None:
        self.address = address
        self.patience = patience
        self.stopped = stopped
        self.connection = http.client.HTTPConnection(address, timeout=10)

    def call(self, path: str, arrays: Arrays) -> Arrays:
        """POST the arrays and return the answer's; raise RefusedError, UnreachableError or ValueError."""
        body = pack(arrays)
        deadline = time.monotonic() + self.patience
        pause = 0.05
        while True:
            try:
                return self.ask_once(path, body)
            except (OSError, http.client.HTTPException) as error:
                self.connection.close()
                if self.stopped() or time.monotonic() > deadline:
                    raise UnreachableError(f"{self.address}{path}: {error}") from error
            time.sleep(pause)
            pause = min(2 * pause, 1.0)

    def ask_once(self, path: str, body: bytes) -> Arrays:
        self.connection.request("POST", path, body)
        response = self.connection.getresponse()
        answer = response.read()
        if response.status == 200:
            return unpack(answer)
        message = f"{self.address}{path}: {answer.decode(errors='replace').strip()}"
        raise RefusedError(message) if response.status == 409 else ValueError(message)
