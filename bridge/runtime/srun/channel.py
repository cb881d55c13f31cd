"""The protocol between srun and the nodes of a step: authenticated frames over one connection per node.

Both sides prove that they know the job's key (HMAC-SHA256 over two nonces); then each frame carries a code made of a
key of this connection and direction, and of the frame's number, so that nothing can be added, changed or replayed.
Nothing is encrypted. On a socket pair inside one process tree the key is empty and frames carry no code.

    frame: length of the rest (4 bytes), code (16 bytes, with a key only), kind (1 byte), body
"""

from __future__ import annotations

import hmac
import os
import socket
import struct
from typing import Optional

from overspan.bridge.model.records import NamedTuple

VERSION = b"overspan-step-1\n"
NONCE_SIZE = 32
CODE_SIZE = 16
MAX_FRAME = 16 << 20
_READ_SIZE = 1 << 16
_LENGTH = struct.Struct("!I")
_RANK = struct.Struct("!I")

# From srun to a node.
RUN = b"R"  # JSON: what to start
HOLD = b"H"  # the allocation lasts as long as this connection
RELEASE = b"L"  # exit code of the held allocation, in decimal
INPUT = b"I"  # rank, bytes of its standard input; none is its end
SIGNAL = b"S"  # signal number in decimal, to every rank here
WINDOW = b"W"  # rows and columns of the terminal, in decimal
# From a node to srun.
OUTPUT = b"O"  # rank, bytes
ERROR = b"E"  # rank, bytes
STARTED = b"B"  # JSON: pids by rank
TAKEN = b"T"  # bytes of input that every rank has taken, in decimal
ENDED = b"X"  # rank, wait status in decimal
DONE = b"D"  # every rank here has ended and nothing of it is left
REFUSED = b"F"  # text: why the step cannot be

EVERY_RANK = 0xFFFFFFFF


class AuthenticationError(Exception):
    """The other side does not know the key, or a frame was tampered with."""


class Frame(NamedTuple):
    """One message."""

    kind: bytes
    body: bytes


def pack_rank(rank: int, data: bytes) -> bytes:
    """A body that belongs to one rank."""
    return _RANK.pack(rank) + data


def unpack_rank(body: bytes) -> tuple[int, bytes]:
    """The rank and the rest of a body; ValueError when it has none."""
    if len(body) < _RANK.size:
        raise ValueError("a frame without its rank")
    return int(_RANK.unpack_from(body)[0]), body[_RANK.size :]


class Codec:
    """Frames to bytes and back, with the codes of one connection; empty keys mean none."""

    def __init__(self, send_key: bytes = b"", receive_key: bytes = b"") -> None:
        self._send_key, self._receive_key = send_key, receive_key
        self._sent = self._received = 0
        self._buffer = bytearray()

    def encode(self, kind: bytes, body: bytes = b"") -> bytes:
        """One frame as bytes."""
        content = kind + body
        code = b""
        if self._send_key:
            code = _code(self._send_key, self._sent, content)
            self._sent += 1
        return _LENGTH.pack(len(code) + len(content)) + code + content

    def decode(self, data: bytes) -> list[Frame]:
        """The frames that are complete with these bytes. Raises AuthenticationError for one that is not genuine."""
        self._buffer += data
        frames = []
        while len(self._buffer) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._buffer)
            if not 0 < size <= MAX_FRAME:
                raise AuthenticationError(f"a frame of {size} bytes")
            if len(self._buffer) < _LENGTH.size + size:
                break
            content = bytes(self._buffer[_LENGTH.size : _LENGTH.size + size])
            del self._buffer[: _LENGTH.size + size]
            frames.append(self._open(content))
        return frames

    def _open(self, content: bytes) -> Frame:
        if self._receive_key:
            code, content = content[:CODE_SIZE], content[CODE_SIZE:]
            if not content or not hmac.compare_digest(code, _code(self._receive_key, self._received, content)):
                raise AuthenticationError("a frame that the other side did not send")
            self._received += 1
        return Frame(content[:1], content[1:])


def _code(key: bytes, number: int, content: bytes) -> bytes:
    return hmac.digest(key, number.to_bytes(8, "big") + content, "sha256")[:CODE_SIZE]


class Channel:
    """A connection for a poll loop: reads what is there, and keeps what could not be written yet."""

    def __init__(self, connection: socket.socket, codec: Optional[Codec] = None) -> None:
        connection.setblocking(False)
        self._socket = connection
        self._codec = codec or Codec()
        self._out = bytearray()
        self._unread: list[Frame] = []
        self.closed = False
        """Whether the other side is gone."""

    def fileno(self) -> int:
        """The descriptor, for poll."""
        return self._socket.fileno()

    @property
    def waiting(self) -> int:
        """Bytes that wait to be written."""
        return len(self._out)

    def send(self, kind: bytes, body: bytes = b"") -> None:
        """Send a frame, as far as it goes without waiting."""
        if not self.closed:
            self._out += self._codec.encode(kind, body)
            self.flush()

    def flush(self) -> None:
        """Write what waits, as far as it goes."""
        while self._out and not self.closed:
            try:
                done = self._socket.send(self._out[:_READ_SIZE])
            except BlockingIOError:
                return
            except OSError:
                self.closed = True
                return
            del self._out[:done]

    def receive(self) -> list[Frame]:
        """The frames that have come; sets `closed` at the end. Raises AuthenticationError."""
        try:
            data = self._socket.recv(_READ_SIZE)
        except BlockingIOError:
            return []
        except OSError:
            data = b""
        if not data:
            self.closed = True
            return []
        return self._codec.decode(data)

    def unread(self, frames: list[Frame]) -> None:
        """Keep frames that came with one that was waited for."""
        self._unread = frames

    def take_unread(self) -> list[Frame]:
        """The frames that were kept."""
        frames, self._unread = self._unread, []
        return frames

    def close(self) -> None:
        """Close the connection."""
        self.closed = True
        self._socket.close()


def greet(connection: socket.socket, key: bytes, timeout: float) -> Channel:
    """Srun's side: prove the key and have it proved. Raises OSError and AuthenticationError."""
    connection.settimeout(timeout)
    mine = os.urandom(NONCE_SIZE)
    connection.sendall(VERSION + mine)
    theirs, proof = _split(_receive(connection, NONCE_SIZE + 32))
    if not hmac.compare_digest(proof, _prove(key, b"node", mine, theirs)):
        raise AuthenticationError("the step daemon does not know the job's key")
    connection.sendall(_prove(key, b"srun", mine, theirs))
    return Channel(connection, Codec(_prove(key, b"to-node", mine, theirs), _prove(key, b"to-srun", mine, theirs)))


def welcome(connection: socket.socket, key: bytes, timeout: float) -> Channel:
    """The node's side of `greet`."""
    connection.settimeout(timeout)
    hello = _receive(connection, len(VERSION) + NONCE_SIZE)
    if not hello.startswith(VERSION):
        raise AuthenticationError("the other side speaks another protocol")
    theirs, mine = hello[len(VERSION) :], os.urandom(NONCE_SIZE)
    connection.sendall(mine + _prove(key, b"node", theirs, mine))
    if not hmac.compare_digest(_receive(connection, 32), _prove(key, b"srun", theirs, mine)):
        raise AuthenticationError("the client does not know the job's key")
    return Channel(connection, Codec(_prove(key, b"to-srun", theirs, mine), _prove(key, b"to-node", theirs, mine)))


def keep_alive(connection: socket.socket) -> None:
    """Have the kernel notice a peer that is gone without a word: within about a minute."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (("TCP_KEEPIDLE", 20), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _prove(key: bytes, role: bytes, client: bytes, node: bytes) -> bytes:
    return hmac.digest(key, role + b"\0" + client + node, "sha256")


def _split(data: bytes) -> tuple[bytes, bytes]:
    return data[:NONCE_SIZE], data[NONCE_SIZE:]


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(size - len(data))
        if not part:
            raise ConnectionResetError("the other side closed the connection")
        data += part
    return data
