"""The worker's way to the daemon: HTTP over its unix socket, or over TLS to its port for jobs."""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from typing import Any, Optional

from overspan.bridge.model.access_documents import find_token

EXCHANGE = "/v1/pool/exchange"
_NO_TIMES = 0x200000
"""X509_V_FLAG_NO_CHECK_TIME: the node's clock may be wrong, and the certificate is pinned."""
MARGIN_SECONDS = 30.0
"""How much longer than it may wait the daemon has for an answer."""


class Dismissed(Exception):
    """The daemon says that this job is no worker any more."""


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


class _Connection(http.client.HTTPConnection):
    """HTTP over a socket of the daemon's."""

    def __init__(self, address: DaemonAddress, timeout: float) -> None:
        super().__init__("span", timeout=timeout)
        self._address = address

    def connect(self) -> None:
        """Open the socket."""
        self.sock = self._address.connect(self.timeout or MARGIN_SECONDS)


class DaemonConnection:
    """One connection, opened anew where it was lost."""

    def __init__(self, address: DaemonAddress) -> None:
        self._address = address
        self._connection: Optional[_Connection] = None

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        """Say how far the worker is, and give what it is owed. Raises OSError where there is no answer, Dismissed."""
        return self.post(EXCHANGE, message, float(message["wait"]))

    def post(self, path: str, message: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        """Send a message and give the answer, for which it waits so long. Raises OSError, Dismissed."""
        if self._connection is None:
            self._connection = _Connection(self._address, wait + MARGIN_SECONDS)
        body = json.dumps(message, separators=(",", ":")).encode()
        try:
            self._connection.request("POST", path, body, self._address.headers)
            answer = self._connection.getresponse()
            data = answer.read()
        except (http.client.HTTPException, OSError) as error:
            self._close()
            raise OSError(f"the daemon does not answer: {error!r}") from error
        if answer.will_close:
            self._close()
        if answer.status in (403, 404):
            raise Dismissed(_read_message(data))
        if answer.status != 200:
            raise OSError(f"the daemon answered {answer.status}: {_read_message(data)}")
        document: dict[str, Any] = json.loads(data)
        return document

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def _read_message(data: bytes) -> str:
    try:
        return str(json.loads(data)["error"]["message"])
    except (ValueError, LookupError, TypeError):
        return "an answer that is none of the daemon's"
