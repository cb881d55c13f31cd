"""Requests to the daemon and their answers: one connection, kept open between requests."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from overspan.bridge.client import autostart
from overspan.bridge.client.connection import ConnectionClosed, HttpConnection, HttpResponse, ProtocolError
from overspan.bridge.config.paths import find_paths, find_server
from overspan.bridge.model.errors import Conflict, OverspanError, Unreachable, error_from_document

FORMAT = 1
RETRY_PAUSES = (0.05, 0.2, 0.0)
"""Seconds before a GET is sent again; 0 is the last try. A killed daemon's socket may still take one connection."""
CUT = "the daemon went away before it answered"
"""What is said where an answer ends too early."""
_LISTED = ("/v1/queue", "/v1/history", "/v1/jobs", "/v1/schedules", "/v1/nodes", "/v1/clusters", "/v1/events")
"""Answers with texts of users, none of which is a text of several lines."""
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-._~,")
_PLAIN_IN_PATH = _PLAIN | frozenset(b"+:@")


class Cut(Unreachable):
    """The daemon took a request, and went away before its answer was read: it may or may not have had its effect."""


class Silent(Unreachable):
    """The daemon has taken a request, and does not answer in time."""


class DaemonTransport:
    """The connection of a client; it starts the daemon on first use."""

    def __init__(
        self, *, environment: Mapping[str, str] | None = None, autostart: bool = True, timeout: float = 60.0
    ) -> None:
        self.environment: Mapping[str, str] = os.environ if environment is None else environment
        paths = find_paths(self.environment)
        self.server = find_server(self.environment, paths)
        """The socket of the shared daemon; empty for the user's own."""
        self.paths = paths._replace(socket=self.server) if self.server else paths
        self.timeout = timeout
        self.autostart = autostart
        """Whether a request starts a daemon that does not run."""
        self.for_terminal = False
        """Whether texts of jobs and clusters are given as a terminal may have them."""
        self._connection: HttpConnection | None = None

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _get(self, target: str) -> dict[str, Any]:
        return self._read(self._request("GET", target), listed=target.startswith(_LISTED))

    def _post(self, target: str, body: Mapping[str, Any], lost: str = "") -> dict[str, Any]:
        data = json.dumps({"format": FORMAT, **body}).encode()
        return self._read(self._request("POST", target, data, lost=lost))

    def _post_once(self, target: str, body: Mapping[str, Any], lost: str) -> dict[str, Any]:
        """Post what must have its effect once: under a token, by which the daemon knows a repetition.

        `lost` is the remedy where no daemon answers any more.
        """
        return self._post_again(target, {**body, "token": os.urandom(16).hex()}, lost)

    def _post_again(self, target: str, body: Mapping[str, Any], lost: str = "") -> dict[str, Any]:
        """Post what has the same effect when it is repeated; sent again where the daemon goes away (`Cut`)."""
        for pause in (0.0, *RETRY_PAUSES[:-1]):
            time.sleep(pause)
            try:
                return self._post(target, body, lost)
            except Cut:
                continue
            except Unreachable as error:
                if pause and lost not in error.remedy:
                    error.remedy = "; ".join(filter(None, (lost, error.remedy)))
                raise
        raise Cut(CUT, remedy=lost)

    def _read(self, answer: HttpResponse, *, listed: bool = False) -> dict[str, Any]:
        try:
            data = answer.read()
        except (ConnectionClosed, ConnectionResetError):
            self.close()
            raise Cut(CUT) from None
        if not answer.reusable:
            self.close()
        document = _decode(answer.status, data)
        return self._clean(document) if listed and self._is_unsafe(data) else document

    def _is_unsafe(self, data: bytes) -> bool:
        if not self.for_terminal:
            return False
        from overspan.bridge.client.terminal_texts import may_need_cleaning

        return may_need_cleaning(data)

    def _clean(self, document: dict[str, Any]) -> dict[str, Any]:
        from overspan.bridge.client.terminal_texts import clean_document

        cleaned: dict[str, Any] = clean_document(document)
        return cleaned

    def _request(
        self, method: str, target: str, body: bytes = b"", *, timeout: float | None = None, lost: str = ""
    ) -> HttpResponse:
        """Send one request; a GET that found the connection closed is sent again on a new one."""
        if method != "GET" and self._connection is not None and not target.endswith("/shutdown"):
            # A kept connection may have been closed meanwhile, and an order must not be sent twice.
            self.close()
        for pause in RETRY_PAUSES if method == "GET" else (0.0,):
            connection = self._open()
            try:
                answer = connection.request(method, target, body, timeout=timeout or self.timeout)
                break
            except ConnectionClosed:
                self.close()
                if not pause:
                    raise Cut(CUT, remedy=lost) from None
                time.sleep(pause)
            except TimeoutError:
                self.close()
                silent = f"the daemon did not answer within {timeout or self.timeout:g} s"
                raise Silent(silent, remedy=lost) from None
            except (OSError, ProtocolError) as error:
                self.close()
                raise Unreachable(f"cannot talk to the daemon on {self.paths.socket}: {error}") from None
        if answer.status >= 400:
            self._read(answer)
        return answer

    def _open(self) -> HttpConnection:
        if self._connection is None:
            access = self.environment.get("SPAN_JOB_ACCESS")
            if access:
                self._connection = _open_from_job(access, self.environment, self.timeout)
            elif self.server:
                self._connection = self._open_server()
            elif self.autostart:
                self._connection = autostart.ensure_daemon(self.paths, self.environment, self.timeout)
            else:
                self._connection = autostart.connect(self.paths, self.timeout)
        if self._connection is None:
            raise Unreachable("the daemon is not running", remedy="any command starts it; `span daemon` runs it here")
        return self._connection

    def _open_server(self) -> HttpConnection:
        connection = autostart.connect(self.paths, self.timeout)
        if connection is None:
            raise Unreachable(
                f"the shared daemon does not run: no process listens on {self.server}",
                remedy="the administrator of this machine starts it; SPAN_SERVER= before a command uses your own",
            )
        return connection


def _open_from_job(path: str, environment: Mapping[str, str], timeout: float) -> HttpConnection:
    from overspan.bridge.client.job_connection import JobConnection, read_access

    return JobConnection(read_access(path, environment), timeout)


def _quote(text: str, safe: frozenset[int] = _PLAIN) -> str:
    """Percent-encode; urllib.parse would cost each command 4 ms of imports."""
    return "".join(chr(byte) if byte in safe else f"%{byte:02X}" for byte in text.encode(errors="surrogateescape"))


def quote_part(ref: str) -> str:
    """A word as one part of a path."""
    return _quote(ref, _PLAIN_IN_PATH)


def make_query(values: Mapping[str, Any]) -> str:
    """The parameters behind a path, `?` included; those without a value are left out."""
    given = [f"{name}={_quote(str(value))}" for name, value in values.items() if value not in (None, "")]
    return "?" + "&".join(given) if given else ""


def _decode(status: int, data: bytes) -> dict[str, Any]:
    """Read an answer's document, or raise the error that it is."""
    try:
        document = json.loads(data) if data else {}
    except ValueError:
        raise foreign(f"its answer is not JSON (HTTP status {status})") from None
    if not isinstance(document, dict):
        raise foreign("its answer is no document")
    failure = document.get("error")
    if isinstance(failure, dict):
        error = error_from_document(failure)
        if isinstance(failure.get("exit_code"), int):
            # Slurm's own codes, 255 for one, are no members of the enumeration.
            error.exit_code = failure["exit_code"]
        raise error
    if status >= 400:
        raise foreign(f"it does not know this request (HTTP status {status})")
    if document.get("format", FORMAT) != FORMAT:
        raise foreign(f"it speaks format {document['format']}, this command format {FORMAT}")
    return document


def foreign(detail: str) -> OverspanError:
    """The error for a daemon whose answer only another version of this command would understand."""
    from overspan import __version__

    return Conflict(
        f"the daemon is of another version than this command ({__version__}): {detail}",
        remedy="end it with `span shutdown` (jobs go on); the next command starts the installed one",
    )
