"""The daemon's TCP port for commands inside jobs: TLS by its own certificate, a job's token with each request.

It is open only where a cluster has a `daemon_address`. The port is the configured one, else a free one that is kept in
the state folder: jobs that run are told it once. A port that is taken costs the jobs their way to the daemon, never the
daemon its start.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from dataclasses import dataclass

from starlette.types import ASGIApp, Receive, Scope, Send

from overspan.bridge.api.authorization import JOB_TOKEN
from overspan.bridge.api.certificates import DaemonCertificate, open_certificate
from overspan.bridge.api.server import JoinedProtocol, UnixServer
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.core.job_access import JobAccess
from overspan.bridge.model.errors import OverspanError

log = logging.getLogger(__name__)

FOLDER, PORT_FILE = "job-access", "port"
BACKLOG = 128
MAX_CONNECTIONS = 1000
"""From here on a request is answered with 503: each connection costs a descriptor and some 100 KB."""
REQUEST_SECONDS = 30.0
"""From its first byte, or from the connection, a request has so long until it is here as a whole."""
_BEARER = b"bearer "


@dataclass(frozen=True)
class JobPort:
    """A socket that listens, and what jobs are told of it."""

    listener: socket.socket
    certificate: DaemonCertificate
    access: JobAccess


def open_job_port(settings: Settings, state: str) -> JobPort | None:
    """Listen for jobs; None where no cluster has a `daemon_address`, or where it cannot be done, which is logged."""
    reached = {name: each for name, each in settings.clusters.items() if each.daemon_address}
    if not reached:
        return None
    addresses = {name: each.daemon_address for name, each in reached.items()}
    host = "127.0.0.1" if all(each.daemon_tunnel for each in reached.values()) else ""
    folder = os.path.join(state, FOLDER)
    try:
        certificate = open_certificate(folder)
        listener = _listen(settings.server.job_port, os.path.join(folder, PORT_FILE), host)
    except (OSError, OverspanError) as error:
        log.error("commands inside jobs do not reach the daemon: %s", error)
        return None
    port = listener.getsockname()[1]
    log.info("listening for jobs on port %d", port)
    return JobPort(listener, certificate, JobAccess(certificate.secret, certificate.text, addresses, port))


class JobProtocol(JoinedProtocol):
    """HTTP that closes a connection whose request does not come to its end, so that none is held for ever."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        super().connection_made(transport)
        self._await_request()

    def on_message_begin(self) -> None:
        """Wait for the rest of it."""
        super().on_message_begin()
        self._await_request()

    def on_message_complete(self) -> None:
        """It is here; uvicorn itself closes a connection without a next one."""
        super().on_message_complete()
        self._forget_deadline()

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave no timer behind."""
        self._forget_deadline()
        super().connection_lost(exc)

    def _await_request(self) -> None:
        if self._deadline is None:
            self._deadline = self.loop.call_later(REQUEST_SECONDS, self.transport.abort)

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


class JobServer(UnixServer):
    """Serves the same application to jobs."""

    def __init__(self, app: ASGIApp, port: JobPort) -> None:
        super().__init__(
            TokenReader(app),
            http=JobProtocol,
            limit_concurrency=MAX_CONNECTIONS,
            timeout_graceful_shutdown=1,
            ssl_certfile=port.certificate.path,
        )


class TokenReader:
    """Middleware that takes the token of each request; one without is a stranger's."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            given = next((value for name, value in scope["headers"] if name == b"authorization"), b"")
            token = given[len(_BEARER) :] if given[: len(_BEARER)].lower() == _BEARER else b""
            scope["state"] = {**(scope.get("state") or {}), JOB_TOKEN: token.decode("latin-1")}
        await self.app(scope, receive, send)


def _listen(configured: int, file: str, host: str) -> socket.socket:
    """Listen at the configured port, else at the one of last time, else at a free one. Raises OSError.

    An empty host is every address of this machine.
    """
    kept = 0 if configured else _read_port(file)
    try:
        listener = _bind(configured or kept, host)
    except OSError as error:
        if not kept:
            raise OSError(f"port {configured}: {error.strerror}") from None
        log.warning("port %d is taken: jobs that run do not reach the daemon, new ones are told another port", kept)
        listener = _bind(0, host)
    port = listener.getsockname()[1]
    if not configured and port != kept:
        with open(f"{file}.new", "w") as stream:
            stream.write(f"{port}\n")
        os.replace(f"{file}.new", file)
    return listener


def _bind(port: int, host: str) -> socket.socket:
    if host:
        listener = socket.create_server((host, port), backlog=BACKLOG)
        listener.setblocking(False)
        return listener
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    dual = family == socket.AF_INET6
    try:
        listener = socket.create_server(("", port), family=family, backlog=BACKLOG, dualstack_ipv6=dual)
    except OSError:
        if not dual:
            raise
        # An address family that the kernel knows and this machine has switched off.
        listener = socket.create_server(("", port), backlog=BACKLOG)
    listener.setblocking(False)
    return listener


def _read_port(file: str) -> int:
    try:
        with open(file) as stream:
            text = stream.read(16).strip()
    except OSError:
        return 0
    return int(text) if text.isdigit() and 0 < int(text) < 65536 else 0
