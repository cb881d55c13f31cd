"""The worker's way to a daemon that it can connect to: HTTP over its unix socket, or over TLS to its port for jobs."""

from __future__ import annotations

import errno
import json
import os
import socket
import ssl
from typing import Any, Optional, Protocol

from overspan.bridge.model.access_documents import find_token
from overspan.bridge.model.records import NamedTuple

EXCHANGE = "/v1/pool/exchange"
_NO_TIMES = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME: the node's clock may be wrong, and the certificate is pinned."""
MARGIN_SECONDS = 30.0
"""How much longer than it may wait the daemon has for an answer."""


_LONGEST_LINE = 65536


class Dismissed(Exception):
    """The daemon says that this job is no worker any more."""


class WorkerConnection(Protocol):
    """Carries one message at a time to the daemon, and its answer back. All ways have the same two refusals."""

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say how far the worker is, and give what it is owed. Raises OSError where there is no answer, Dismissed."""
        ...

    def post(self, path: str, message: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        """Send a message and give the answer, for which it waits so long. Raises OSError, Dismissed."""
        ...

    def close(self) -> None:
        """Close what is open; the next message opens it again."""
        ...


class WorkerAddress(Protocol):
    """The way to the daemon. Each of a worker's threads opens a connection of its own there, by its name."""

    def open(self, name: str) -> WorkerConnection:
        """A connection for one thread; nothing is sent yet."""
        ...


class DaemonAddress:
    """Where the daemon is: `socket PATH`, or `access FILE` with what a job is told of the port for jobs."""

    def __init__(self, kind: str, path: str) -> None:
        self._path = path
        self._access: dict[str, Any] = {}
        if kind == "access":
            with open(path, encoding="utf-8") as file:
                self._access = json.load(file)

    @property
    def headers(self) -> dict[str, str]:
        """What goes with each request."""
        headers = {"Content-Type": "application/json", "Host": "span", "X-Span-Format": "1"}
        if self._access:
            headers["Authorization"] = f"Bearer {find_token(self._access, os.environ)}"
        return headers

    def open(self, name: str) -> WorkerConnection:
        """A connection, which opens its socket with the first message."""
        return DaemonConnection(self)

    def connect(self, seconds: float) -> socket.socket:
        """A connected socket. Raises OSError."""
        if not self._access:
            plain = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            plain.settimeout(seconds)
            plain.connect(self._path)
            return plain
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_flags = ssl.VerifyFlags(context.verify_flags | _NO_TIMES)
        context.load_verify_locations(cadata=self._access["certificate"])
        tcp = socket.create_connection((self._access["host"], int(self._access["port"])), seconds)
        return context.wrap_socket(tcp)


class _DaemonAnswer(NamedTuple):
    """What the daemon has answered, and whether it closes the connection then."""

    status: int
    data: bytes
    closes: bool


class _Line:
    """One connection, with as much of HTTP as the daemon's answers have: a short job costs three of them.

    The library's parser of headers, which is that of mails, takes half of an exchange's time.
    """

    def __init__(self, address: DaemonAddress, timeout: float) -> None:
        self._socket = address.connect(timeout)
        self._socket.settimeout(timeout)
        self._file = self._socket.makefile("rb")
        self._headers = "".join(f"{name}: {value}\r\n" for name, value in address.headers.items())

    def post(self, path: str, body: bytes) -> _DaemonAnswer:
        """Send a body and give the answer. Raises OSError, and ValueError where it is none."""
        head = f"POST {path} HTTP/1.1\r\n{self._headers}Content-Length: {len(body)}\r\n\r\n"
        self._socket.sendall(head.encode() + body)
        words = self._file.readline(_LONGEST_LINE).split(None, 2)
        if len(words) < 2 or not words[0].startswith(b"HTTP/1."):
            raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
        size, closes = -1, words[0] == b"HTTP/1.0"
        while True:
            line = self._file.readline(_LONGEST_LINE)
            if line in (b"\r\n", b"\n"):
                break
            name, colon, value = line.partition(b":")
            if not colon:
                raise ValueError("the answer's head is cut")
            if name.lower() == b"content-length":
                size = int(value)
            elif name.lower() == b"connection":
                closes = value.strip().lower() == b"close"
        data = self._file.read(size) if size > 0 else b""
        if size < 0 or len(data) < size:
            raise ValueError("the answer is cut")
        return _DaemonAnswer(int(words[1]), data, closes)

    def close(self) -> None:
        """Close its socket."""
        self._file.close()
        self._socket.close()


class DaemonConnection:
    """One connection, opened anew where it was lost."""

    def __init__(self, address: DaemonAddress) -> None:
        self._address = address
        self._line: Optional[_Line] = None

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say how far the worker is, and give what it is owed. Raises OSError where there is no answer, Dismissed."""
        return self.post(EXCHANGE, message, float(message["wait"]))

    def post(self, path: str, message: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        """Send a message and give the answer, for which it waits so long. Raises OSError, Dismissed."""
        body = json.dumps(message, separators=(",", ":")).encode()
        try:
            answer = self._send(path, body, wait)
        except (ValueError, OSError) as error:
            self.close()
            raise OSError(f"the daemon does not answer: {error!r}") from error
        if answer.closes:
            self.close()
        return read_answer(answer.status, answer.data)

    def _send(self, path: str, body: bytes, wait: float) -> _DaemonAnswer:
        if self._line is not None:
            try:
                return self._line.post(path, body)
            except (BrokenPipeError, ConnectionResetError):
                # The daemon closes what was idle for some seconds. Said twice, it counts once.
                self.close()
        self._line = _Line(self._address, wait + MARGIN_SECONDS)
        return self._line.post(path, body)

    def close(self) -> None:
        """Close it; the next message opens another."""
        if self._line is not None:
            self._line.close()
            self._line = None


def read_answer(status: int, data: bytes) -> dict[str, Any]:
    """The document of an answer. Raises Dismissed, and OSError where it is a refusal or no document."""
    if status in (403, 404):
        raise Dismissed(_read_message(data))
    if status != 200:
        raise OSError(f"the daemon answered {status}: {_read_message(data)}")
    document: dict[str, Any] = json.loads(data)
    return document


def _read_message(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return "an answer that is none of the daemon's"
