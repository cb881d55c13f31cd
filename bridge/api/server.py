"""uvicorn on a unix socket that only the owner can reach."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp

from overspan.bridge.model.errors import Conflict, OverspanError

BACKLOG = 2048
GRACE = 3
"""Seconds that requests under way have at the end."""
KNOCK = 2.0
"""Seconds to wait for whoever may listen on a socket that is already there."""


class Server(uvicorn.Server):
    """A server that sleeps until it is stopped: uvicorn's own wakes ten times a second."""

    def __init__(self, app: ASGIApp) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                http="httptools",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                date_header=False,
                server_header=False,
                timeout_graceful_shutdown=GRACE,
            )
        )
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


def bind_socket(path: str) -> socket.socket:
    """Listen at the path, 0600. The caller holds the lease, so a socket that nobody answers on is a dead daemon's.

    Raises Conflict when somebody listens there, OverspanError when it cannot be made.
    """
    _clear_way(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
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
