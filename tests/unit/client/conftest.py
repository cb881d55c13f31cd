"""A daemon that answers what a test tells it to, on a real unix socket."""

from __future__ import annotations

import json
import socketserver
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

Route = Callable[[dict[str, Any]], Any]


class FakeDaemon:
    """Routes by `METHOD path`; each gets the request and gives a document, or (status, body, headers)."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self.environment = {"SPAN_STATE_DIR": str(state), "SPAN_AUTOSTART": "0", "HOME": str(state), "PATH": "/usr/bin"}
        self.routes: dict[str, Route] = {}
        self.requests: list[dict[str, Any]] = []
        self.hang_ups = 0
        """How many of the next requests get no answer at all."""

    def answer(self, request: dict[str, Any]) -> Any:
        """What to send for a request."""
        self.requests.append(request)
        route = self.routes.get(f"{request['method']} {request['path']}")
        if route is None:
            return 404, {"detail": "Not Found"}, {}
        return route(request)


def _handler(daemon: FakeDaemon) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _serve(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            parts = urlsplit(self.path)
            query = {key: values[-1] for key, values in parse_qs(parts.query).items()}
            request = {"method": self.command, "path": parts.path, "query": query, "raw": self.path}
            request["body"] = json.loads(body) if body else {}
            if daemon.hang_ups:
                daemon.hang_ups -= 1
                daemon.requests.append(request)
                self.close_connection = True
                return
            result = daemon.answer(request)
            status, content, headers = result if isinstance(result, tuple) else (200, result, {})
            data = content if isinstance(content, bytes) else json.dumps(content).encode()
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if headers.get("Transfer-Encoding") == "chunked":
                self.end_headers()
                for start in range(0, len(data), 7):
                    piece = data[start : start + 7]
                    self.wfile.write(b"%x\r\n%b\r\n" % (len(piece), piece))
                self.wfile.write(b"0\r\n\r\n")
                return
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = _serve

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeDaemon]:
    """A running fake daemon; the environment names it."""
    fake = FakeDaemon(tmp_path / "state")
    (fake.state / "run").mkdir(parents=True, mode=0o700)

    class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            # A client may leave before it has read everything.
            if not isinstance(sys.exception(), ConnectionError):
                super().handle_error(request, client_address)

    for name in ("SPAN_RUNTIME_DIR", "XDG_RUNTIME_DIR", "SQUEUE_FORMAT", "SLURM_CLUSTERS", "SBATCH_WAIT"):
        monkeypatch.delenv(name, raising=False)
    for name, value in fake.environment.items():
        if name.startswith("SPAN"):
            monkeypatch.setenv(name, value)
    with Server(str(fake.state / "run" / "span.sock"), _handler(fake)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield fake
        server.shutdown()
        thread.join()
