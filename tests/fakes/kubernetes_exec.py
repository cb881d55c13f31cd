"""Exec of the fake API server: a websocket whose commands a test answers."""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.fakes.kubernetes_objects import Key, Objects, Refused

_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


class Run(NamedTuple):
    """One command that was asked for."""

    namespace: str
    pod: str
    container: str
    words: tuple[str, ...]


@dataclass
class Exec:
    """Answers commands: `reply` gives the exit code and output; None cuts the connection before the end is told."""

    reply: Callable[[Run], tuple[int, str] | None] = lambda run: (0, "")
    polite: bool = False
    """Whether a connection that is cut is closed in good form first."""
    runs: list[Run] = field(default_factory=list)

    def open(self, key: Key, query: Mapping[str, str], words: list[str], objects: Objects) -> Generator[bytes]:
        """The frames of one command; 404 without the pod, 400 where nothing runs in it."""
        pod = objects.get(key)
        if pod["status"].get("phase") != "Running":
            raise Refused(400, "BadRequest", f"cannot exec in a stopped state: pod {key.name}")
        run = Run(key.namespace, key.name, query.get("container") or "main", tuple(words))
        self.runs.append(run)
        return self._answer(run)

    def _answer(self, run: Run) -> Generator[bytes]:
        done = self.reply(run)
        yield frame(b"\x01")
        if done is None:
            yield frame(b"\x01half of the outp")
            if self.polite:
                yield frame(b"")
                yield frame(struct.pack(">H", 1000), opcode=8)
            return
        code, output = done
        if output:
            yield frame(b"\x01" + output.encode())
        status = {"metadata": {}, "status": "Success"}
        if code:
            status = {
                "metadata": {},
                "status": "Failure",
                "reason": "NonZeroExitCode",
                "message": f"command terminated with non-zero exit code: exit status {code}",
                "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
            }
        yield frame(b"\x03" + json.dumps(status).encode())
        yield frame(struct.pack(">H", 1000), opcode=8)


def accept_key(key: str) -> str:
    """RFC 6455, 4.2.2: the answer to a client's key."""
    return base64.b64encode(hashlib.sha1((key + _GUID).encode()).digest()).decode()


def frame(payload: bytes, opcode: int = 2) -> bytes:
    """A server's frame: final, not masked."""
    if len(payload) < 126:
        head = struct.pack(">BB", 0x80 | opcode, len(payload))
    else:
        head = struct.pack(">BBH", 0x80 | opcode, 126, len(payload))
    return head + payload
