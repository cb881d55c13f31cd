"""uvicorn on a unix socket: only the owner can connect, or all users can and the kernel tells which one has."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
import struct
from collections.abc import Iterator
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from overspan.bridge.api.authorization import PEER
from overspan.bridge.api.joined_writes import JoinedWrites
from overspan.bridge.model.errors import Conflict, OverspanError

BACKLOG = 2048
GRACE = 3
"""Seconds that requests under way have at the end."""
KNOCK = 2.0
"""Seconds to wait for an answer on a socket that is already there."""


_CREDENTIALS = struct.Struct("3i")
"""struct ucred: pid, uid, gid (unix(7))."""


class JoinedProtocol(HttpToolsProtocol):
    """HTTP whose answers are one write each."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Join writes from here on."""
        super().connection_made(JoinedWrites(transport, self.loop))  # type: ignore[arg-type]


class PeerProtocol(JoinedProtocol):
    """HTTP whose requests carry the number of the user who connected, as the kernel noted it then."""

    _peer: int | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the number down."""
        self._peer = read_peer(transport.get_extra_info("socket"))
        super().connection_made(transport)

    def on_message_begin(self) -> None:
        """Give it to the request."""
        super().on_message_begin()
        self.scope["state"][PEER] = self._peer


def read_peer(sock: socket.socket | None) -> int | None:
    """The user at the other end of a unix socket; None where the kernel does not tell."""
    if sock is None or sock.family != socket.AF_UNIX:
        return None
    try:
        data = sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    except OSError:
        return None
    uid: int = _CREDENTIALS.unpack(data)[1]
    return uid if uid >= 0 else None


_OPTIONS: dict[str, Any] = {
    "http": PeerProtocol,
    "ws": "none",
    "lifespan": "off",
    "log_config": None,
    "access_log": False,
    "date_header": False,
    "server_header": False,
    # No proxy stands before a socket of the daemon's.
    "proxy_headers": False,
    "timeout_graceful_shutdown": GRACE,
}


class UnixServer(uvicorn.Server):
    """A server that sleeps until it is stopped: uvicorn's own wakes ten times a second.

    `options` are uvicorn's, and count before those of a server on a unix socket.
    """

    def __init__(self, app: ASGIApp, **options: Any) -> None:
        super().__init__(uvicorn.Config(app, **{**_OPTIONS, **options}))
        self._stopped = asyncio.Event()

    def stop(self) -> None:
        """End the server; requests under way are finished."""
        self._stopped.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals to the daemon."""
        yield

    async def main_loop(self) -> None:
        """Wait for the end."""
        await self._stopped.wait()


def bind_socket(path: str, mode: int = 0o600) -> socket.socket:
    """Listen at the path. The caller holds the lease, so a socket without a listener is a dead daemon's.

    Raises Conflict when another process listens there, OverspanError when it cannot be made.
    """
    _clear_way(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(~mode & 0o777)
    try:
        listener.bind(path)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise OverspanError(
            f"cannot listen on {path}: {error.strerror}", remedy="name another folder with SPAN_RUNTIME_DIR"
        ) from None
    finally:
        os.umask(mask)
    listener.setblocking(False)
    return listener


def remove_socket(path: str, inode: int) -> None:
    """Remove the socket if it is still the same file."""
    try:
        if os.lstat(path).st_ino == inode:
            os.unlink(path)
    except OSError:
        pass


def _clear_way(path: str) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise OverspanError(f"cannot look at {path}: {error.strerror}") from None
    if not stat.S_ISSOCK(mode):
        raise OverspanError(f"{path} is there and is no socket", remedy="move it away")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as knock:
        knock.settimeout(KNOCK)
        try:
            knock.connect(path)
        except (ConnectionRefusedError, FileNotFoundError):
            pass
        except OSError as error:
            raise OverspanError(f"cannot tell whether a daemon listens on {path}: {error}") from None
        else:
            raise Conflict(
                f"a daemon of another state folder listens on {path}",
                remedy="name another folder with SPAN_RUNTIME_DIR",
            )
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise OverspanError(f"cannot remove the old socket {path}: {error.strerror}") from None
