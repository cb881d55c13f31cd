"""HTTP/1.1 over a unix socket, as much of it as the daemon speaks.

http.client would cost every command 16 to 20 ms of imports (email, ssl, tempfile; `python -X importtime`), a third
of the budget of `span squeue`.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator, Mapping
from io import BufferedReader

_MAX_HEAD = 65536


class ProtocolError(Exception):
    """What came back is not an HTTP answer."""


class ConnectionClosed(Exception):
    """The peer closed the connection before it answered; the request may or may not have had its effect."""


class HttpResponse:
    """The head of an answer; the body is read once, whole or line by line."""

    def __init__(self, status: int, headers: Mapping[str, str], stream: BufferedReader) -> None:
        self.status = status
        self.headers = headers
        self._stream = stream

    def read(self) -> bytes:
        """The whole body. Raises ConnectionClosed when it is cut short."""
        if self._chunked:
            return b"".join(self._chunks())
        length = self.headers.get("content-length")
        if length is None:
            return self._stream.read()
        body = self._stream.read(int(length))
        if len(body) < int(length):
            raise ConnectionClosed("the answer was cut short")
        return body

    def lines(self) -> Iterator[bytes]:
        """The lines of a streamed body, without their ends, as they come."""
        rest = b""
        chunks = self._chunks() if self._chunked else iter(lambda: self._stream.read1(65536), b"")
        for chunk in chunks:
            *lines, rest = (rest + chunk).split(b"\n")
            yield from lines
        if rest:
            yield rest

    @property
    def reusable(self) -> bool:
        """Whether the connection can carry another request once the body has been read."""
        framed = self._chunked or "content-length" in self.headers
        return framed and self.headers.get("connection", "").lower() != "close"

    @property
    def _chunked(self) -> bool:
        return self.headers.get("transfer-encoding", "").lower() == "chunked"

    def _chunks(self) -> Iterator[bytes]:
        while True:
            size = _parse_size(self._stream.readline(_MAX_HEAD))
            data = self._stream.read(size)
            if len(data) < size:
                raise ConnectionClosed("the answer was cut short")
            self._stream.readline(_MAX_HEAD)
            if size == 0:
                return
            yield data


class HttpConnection:
    """One connection to the daemon. Raises OSError where the socket does."""

    def __init__(self, path: str, timeout: float, opened: socket.socket | None = None, headers: str = "") -> None:
        """Connect to the socket at the path, or take one that is connected; `headers` go with each request."""
        self._socket = opened or _connect(path, timeout)
        self._headers = headers
        self._stream = self._socket.makefile("rb")

    def request(self, method: str, target: str, body: bytes = b"", *, timeout: float) -> HttpResponse:
        """Send one request and read the answer's head; `timeout` is for each read, in seconds.

        Raises ConnectionClosed when the peer closes instead of answering, ProtocolError when the answer is not HTTP,
        TimeoutError when it is silent.
        """
        self._socket.settimeout(timeout)
        head = f"{method} {target} HTTP/1.1\r\nHost: span\r\nX-Span-Format: 1\r\n{self._headers}"
        if body or method == "POST":
            head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
        try:
            self._socket.sendall(head.encode("latin-1") + b"\r\n" + body)
        except (BrokenPipeError, ConnectionResetError):
            # The answer may be there all the same: a refusal that did not wait for the body.
            pass
        try:
            return self._read_head()
        except ConnectionResetError as error:
            raise ConnectionClosed(str(error)) from None

    @property
    def peer(self) -> int:
        """The process that listens, as the kernel noted it (unix(7)); 0 where it has no number here."""
        credentials = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return int.from_bytes(credentials[:4], sys.byteorder)

    def close(self) -> None:
        """Close it; safe to call twice."""
        self._stream.close()
        self._socket.close()

    def _read_head(self) -> HttpResponse:
        line = self._stream.readline(_MAX_HEAD)
        if not line:
            raise ConnectionClosed("the daemon closed the connection")
        words = line.split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit():
            raise ProtocolError(f"the socket answered {line[:60]!r}")
        headers: dict[str, str] = {}
        while True:
            line = self._stream.readline(_MAX_HEAD)
            if line in (b"\r\n", b"\n"):
                return HttpResponse(int(words[1]), headers, self._stream)
            if not line:
                raise ConnectionClosed("the answer was cut short")
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()


def _connect(path: str, timeout: float) -> socket.socket:
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        opened.settimeout(timeout)
        opened.connect(path)
    except BaseException:
        opened.close()
        raise
    return opened


def _parse_size(line: bytes) -> int:
    if not line:
        raise ConnectionClosed("the answer was cut short")
    try:
        return int(line.split(b";")[0], 16)
    except ValueError:
        raise ProtocolError(f"the socket sent {line[:60]!r} for a chunk's size") from None
