"""Connections of a thread's own, for many requests in a row: each takes half of the time of a pooled one.

Only for direct connections: behind a proxy, or with an unusual check of the server's name, requests go through the
pool.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from overspan.adapters.kubernetes.api.logins import ApiLogin
from overspan.adapters.kubernetes.api.sockets import own_sockets


class Reply(NamedTuple):
    """The whole of an answer."""

    status: int
    data: bytes


class ThreadConnection:
    """One connection of a login. Safe for one thread at a time."""

    def __init__(self, login: ApiLogin, connection: http.client.HTTPConnection) -> None:
        self._connection = connection
        self.login = login
        self.broken = False
        """Set when a request failed: what is read from then on might be the answer to an earlier one."""

    def exchange(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> Reply:
        """One request and its whole answer. Raises OSError and HTTPException; the request may have been carried out."""
        try:
            self._connection.request(method, self.login.root + url, body, dict(headers))
            response = self._connection.getresponse()
            return Reply(response.status, response.read())
        except BaseException:
            self.broken = True
            raise

    def close(self) -> None:
        """Let go of the connection."""
        self._connection.close()


def open_thread_connection(login: ApiLogin, timeout: float) -> ThreadConnection | None:
    """A connection that waits at most `timeout` seconds each time; None where the pool has to be used."""
    connection = None
    try:
        connection = _make_connection(login, timeout)
        if connection is None:
            return None
        connection.connect()
    except OSError:
        # The pool's own request finds the words for it.
        if connection is not None:
            connection.close()
        return None
    return ThreadConnection(login, connection)


def _make_connection(login: ApiLogin, timeout: float) -> http.client.HTTPConnection | None:
    """One that is not made yet. Raises OSError for certificates that cannot be read."""
    given, url = login.configuration, urlsplit(login.host)
    if given.proxy or not url.hostname:
        return None
    if url.scheme == "http":
        return http.client.HTTPConnection(url.hostname, url.port, timeout=timeout)
    if not given.verify_ssl or given.assert_hostname is not None or getattr(given, "tls_server_name", None):
        return None
    context = own_sockets(ssl.create_default_context(cafile=given.ssl_ca_cert))
    if given.cert_file:
        context.load_cert_chain(given.cert_file, given.key_file)
    return http.client.HTTPSConnection(url.hostname, url.port, timeout=timeout, context=context)
