"""A command run in a container, over the API's websocket (v5.channel.k8s.io, v4.channel.k8s.io).

Each message begins with a channel: 0 is the command's input, 1 and 2 are its output, 3 carries its end as a Status
object. The end of the connection says nothing about the command.
"""

from __future__ import annotations

import importlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from overspan.adapters.kubernetes.api.answers import ApiAnswer, read_answer
from overspan.bridge.model.errors import TimedOut, Unreachable

_PROTOCOLS = ("v5.channel.k8s.io", "v4.channel.k8s.io")
_INPUT = b"\0"
_OUTPUT = (1, 2)
_STATUS = 3
_CLOSED = 8
"""The kind of a websocket's last message (RFC 6455, 11.8)."""
MAX_OUTPUT = 1 << 20
_CHUNK = 1 << 15
"""Bytes of input in one message; a websocket's message may be larger, proxies limit them."""


class CannotRun(Unreachable):
    """The container cannot run the command at all: it has no such program, or is about to end."""


class ExecCommand(NamedTuple):
    """What to run, and where. `line` is what it may read, and ends with a line break.

    It does not see the end of its input, which only the fifth version of the protocol can tell.
    """

    namespace: str
    pod: str
    container: str
    words: Sequence[str]
    line: bytes = b""
    max_output: int = MAX_OUTPUT

    @property
    def path(self) -> str:
        """The path and query of the request."""
        query = [("container", self.container), ("stdout", "true"), ("stderr", "true")]
        query += [("stdin", "true")] if self.line else []
        query += [("command", word) for word in self.words]
        return f"/api/v1/namespaces/{self.namespace}/pods/{self.pod}/exec?{urlencode(query)}"


class ExecSocket(NamedTuple):
    """How the websocket is opened: its URL (ws, wss), headers, TLS options and proxy as websocket-client takes them."""

    url: str
    headers: Mapping[str, str]
    tls: Mapping[str, Any]
    proxy: Mapping[str, Any]


def run_command(address: ExecSocket, command: ExecCommand, timeout: float) -> tuple[int, str] | ApiAnswer:
    """Run it: exit code and output, or the refusal.

    Raises Unreachable when its end is unknown, CannotRun, and TimedOut.
    """
    library = importlib.import_module("websocket")
    deadline = time.monotonic() + timeout
    connection = library.WebSocket(sslopt=dict(address.tls))
    headers = [f"{name}: {value}" for name, value in address.headers.items()]
    try:
        connection.connect(address.url, header=headers, subprotocols=list(_PROTOCOLS), timeout=timeout, **address.proxy)
        for start in range(0, len(command.line), _CHUNK):
            connection.send_binary(_INPUT + command.line[start : start + _CHUNK])
        return _read_end(connection, deadline, command.max_output)
    except library.WebSocketBadStatusException as error:
        return read_answer(error.status_code, getattr(error, "resp_body", None) or b"")
    except (library.WebSocketTimeoutException, TimeoutError) as error:
        raise TimedOut(f"a command in a pod did not end within {timeout:g} s") from error
    except (library.WebSocketException, OSError) as error:
        raise Unreachable(f"the connection to a command in a pod broke: {error}") from error
    finally:
        connection.shutdown()


def _read_end(connection: Any, deadline: float, most: int) -> tuple[int, str]:
    """Messages up to the Status; what is printed beyond `most` bytes is dropped."""
    output = bytearray()
    while True:
        connection.settimeout(max(0.001, deadline - time.monotonic()))
        kind, message = connection.recv_data()
        if kind == _CLOSED:
            raise Unreachable("the connection to a command in a pod was closed before its end")
        if not message:
            continue
        if message[0] in _OUTPUT:
            output += message[1 : 1 + max(0, most - len(output))]
        elif message[0] == _STATUS and len(message) > 1:
            return read_status(message[1:]), output.decode("utf-8", "replace")


def read_status(text: bytes) -> int:
    """The exit code in a Status. Raises CannotRun, and Unreachable for one that cannot be read."""
    try:
        status = json.loads(text)
        if status["status"] == "Success":
            return 0
        for cause in (status.get("details") or {}).get("causes") or []:
            if cause.get("reason") == "ExitCode":
                return int(cause["message"])
    except (ValueError, KeyError, TypeError, AttributeError):
        raise Unreachable(f"the end of a command in a pod is not readable: {text[:200]!r}") from None
    raise CannotRun(f"a command in a pod could not be run: {status.get('message', '')}")
