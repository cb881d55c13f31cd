"""The HTTP of the fake API server: HTTP/1.1 with kept connections, chunked answers and websockets."""

from __future__ import annotations

import contextlib
import json
import socket
import sys
import threading
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

from tests.fakes.kubernetes_exec import accept_key
from tests.fakes.kubernetes_objects import Document, Refused


class Request(NamedTuple):
    """One request as it came."""

    method: str
    path: str
    query: dict[str, str]
    headers: Mapping[str, str]
    body: bytes
    words: list[str]
    """The values of `command` of an exec."""

    @property
    def document(self) -> Any:
        """The body as JSON; 400 where it is none."""
        try:
            return json.loads(self.body or b"{}")
        except ValueError:
            raise Refused(400, "BadRequest", "the body is not JSON") from None


@dataclass
class Reply:
    """What goes back: a document, bytes, or lines that go on."""

    status: int = 200
    document: Document | None = None
    text: bytes | None = None
    lines: Generator[bytes] | None = None


class _Threads(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 128
    allow_reuse_address = True
    allow_reuse_port = True

    def __init__(self, address: tuple[str, int], answer: Callable[[Any], Any]) -> None:
        super().__init__(address, _Handler)
        self.answer = answer
        self.lock = threading.Lock()
        self.live: dict[socket.socket, threading.Thread] = {}

    def process_request(self, request: Any, client_address: Any) -> None:
        """A connection is known before its thread has begun: `stop` ends it, whatever that thread has done."""
        thread = threading.Thread(
            target=self.process_request_thread, args=(request, client_address), daemon=self.daemon_threads
        )
        with self.lock:
            self.live[request] = thread
        thread.start()

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.live.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away is no news; anything else is told."""
        if not isinstance(sys.exc_info()[1], OSError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    wbufsize = -1

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def do_GET(self) -> None:
        """Answer."""
        self._handle()

    do_POST = do_PUT = do_PATCH = do_DELETE = do_GET

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        pairs = parse_qsl(parts.query, keep_blank_values=True)
        length = int(self.headers.get("content-length") or 0)
        body = self.rfile.read(length) if length else b""
        headers = {name.lower(): value for name, value in self.headers.items()}
        words = [value for name, value in pairs if name == "command"]
        server = self.server
        assert isinstance(server, _Threads)
        reply = server.answer(Request(self.command, parts.path, dict(pairs), headers, body, words))
        if reply is None:
            self._break()
        elif reply.status == 101:
            self._upgrade(headers, reply.lines)
        elif reply.lines is not None:
            self._stream(reply.lines)
        else:
            text = reply.text if reply.text is not None else json.dumps(reply.document or {}).encode()
            self.send_response(reply.status)
            self.send_header("content-type", "text/plain" if reply.text is not None else "application/json")
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)
            self.wfile.flush()

    def _stream(self, lines: Any) -> None:
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        self.wfile.flush()
        try:
            for part in lines:
                if part:
                    self.wfile.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
                    self.wfile.flush()
            self.wfile.write(b"0\r\n\r\n")
            self.wfile.flush()
        except ConnectionError:
            self._break()
        finally:
            lines.close()

    def _upgrade(self, headers: dict[str, str], messages: Any) -> None:
        offered = [name.strip() for name in headers.get("sec-websocket-protocol", "").split(",")]
        self.send_response(101)
        self.send_header("upgrade", "websocket")
        self.send_header("connection", "Upgrade")
        self.send_header("sec-websocket-accept", accept_key(headers.get("sec-websocket-key", "")))
        self.send_header("sec-websocket-protocol", offered[0])
        self.end_headers()
        self.wfile.flush()
        with contextlib.suppress(ConnectionError):
            for message in messages:
                self.wfile.write(message)
                self.wfile.flush()
        self._break()

    def _break(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


class Server:
    """Listens on a free port of this machine, the same one after `stop` and `start`."""

    def __init__(self, answer: Callable[[Any], Any]) -> None:
        self._answer = answer
        self._port = 0
        self._place: socket.socket | None = None
        """Has the port for itself, also while nobody listens there: no other process is given it."""
        self._http: _Threads | None = None
        self._thread: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen."""
        if self._place is None:
            self._place = socket.socket()
            self._place.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            self._place.bind(("127.0.0.1", 0))
            self._port = self._place.getsockname()[1]
        self._http = _Threads(("127.0.0.1", self._port), self._answer)
        self._thread = threading.Thread(target=self._http.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()

    def stop(self, end: Callable[[], None]) -> None:
        """Close the port and each connection, and wait for their threads; `end` ends the answers that go on."""
        if self._http is None or self._thread is None:
            return
        self._http.shutdown()
        self._thread.join()
        with self._http.lock:
            live = dict(self._http.live)
        for connection in live:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        end()
        self._http.server_close()
        for thread in live.values():
            thread.join(5)
        self._http = None

    def close(self) -> None:
        """Give the port up."""
        if self._place is not None:
            self._place.close()
            self._place = None
