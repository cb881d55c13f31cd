"""A web server for tests, with TLS and a certificate of its own."""

from __future__ import annotations

import contextlib
import ssl
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any


class Site:
    """A web server with one file, and its manners."""

    def __init__(self) -> None:
        self.data = b"0123456789"
        self.etag = '"one"'
        self.ranges = True
        self.status = 0
        self.redirect = ""
        self.sized = True
        self.asked: list[tuple[str, str]] = []
        self.host = ""


class Handler(BaseHTTPRequestHandler):
    """Answers for a site."""

    site: Site
    protocol_version = "HTTP/1.0"

    def do_GET(self) -> None:
        site, wanted = self.site, self.headers.get("range", "")
        site.asked.append((self.path, wanted))
        if site.status or self.path.startswith("/missing"):
            self.send_error(site.status or 404)
            return
        if site.redirect and not self.path.startswith("/moved"):
            self.send_response(302)
            self.send_header("location", site.redirect)
            self.end_headers()
            return
        begin, _, end = wanted.removeprefix("bytes=").partition("-")
        part = bool(wanted) and site.ranges
        if part and int(begin) >= len(site.data):
            self.send_response(416)
            self.send_header("content-range", f"bytes */{len(site.data)}")
            self.end_headers()
            return
        data = site.data[int(begin) : int(end) + 1 if end else None] if part else site.data
        self.send_response(206 if part else 200)
        if part:
            self.send_header("content-range", f"bytes {begin}-{int(begin) + len(data) - 1}/{len(site.data)}")
        if site.sized:
            self.send_header("content-length", str(len(data)))
        if site.etag:
            self.send_header("etag", site.etag)
        self.end_headers()
        with contextlib.suppress(OSError):
            self.wfile.write(data)

    def handle(self) -> None:
        # Who does not trust the certificate goes away.
        with contextlib.suppress(OSError):
            super().handle()

    def log_message(self, *words: Any) -> None:
        pass


def make_certificate(folder: Path) -> Path:
    """A certificate of `localhost`, with its key, in one file."""
    path = folder / "both.pem"
    words = "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run(["openssl", *words.split(), "-keyout", path, "-out", f"{path}.crt"], check=True, capture_output=True)
    path.write_text(path.read_text() + Path(f"{path}.crt").read_text())
    return path


@contextlib.contextmanager
def run_site(site: Site, certificate: Path) -> Iterator[str]:
    """Serve it meanwhile; gives its host."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"site": site}))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"localhost:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
