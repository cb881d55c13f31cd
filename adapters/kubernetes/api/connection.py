"""Requests to one cluster's API, over the connection pool of a login."""

from __future__ import annotations

import asyncio
import http.client
import importlib
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode
from weakref import WeakSet

from overspan.adapters.kubernetes.api.answers import ApiAnswer, read_answer, to_error
from overspan.adapters.kubernetes.api.executing import ExecCommand, ExecSocket, run_command
from overspan.adapters.kubernetes.api.logins import ApiLogin, BoundedThread, find_address, log_in, write_words
from overspan.adapters.kubernetes.api.sockets import own_sockets
from overspan.adapters.kubernetes.api.streams import AnswerStream
from overspan.adapters.kubernetes.api.thread_connections import ThreadConnection, open_thread_connection
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import TimedOut, Unreachable

T = TypeVar("T")

THREADS = 16
CONNECT_SECONDS = 10.0
MERGE_PATCH = "application/merge-patch+json"
_JSON = "application/json"
_METADATA = f"{_JSON};as=PartialObjectMetadata;g=meta.k8s.io;v=v1,{_JSON}"
"""A tenth of a pod's whole document, which the server would have to write and this side to read."""
_FRESH_SECONDS = 10.0
"""How long a login's header is used before the login is asked again; it looks at its own expiry."""
_RENEWAL_SECONDS = 5.0
"""The least time between two logins: a plug-in may take seconds, and may be asked for nothing."""
_LOGIN_SECONDS = 60.0
_CLOSED = "the connection to the cluster was closed"


class _Message(NamedTuple):
    """What is sent, and which form of the answer is wanted."""

    body: Any = None
    content_type: str = _JSON
    accept: str = _JSON


class Connection:
    """Requests to one cluster. Blocking and safe to use from any thread; nothing is contacted before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._login: ApiLogin | None = None
        self._login_thread = BoundedThread(_LOGIN_SECONDS)
        self._headers: dict[str, str] = {}
        self._asked_at = self._renewed_at = self._failed_at = float("-inf")
        self._failure: Unreachable | None = None
        self._streams: WeakSet[AnswerStream] = WeakSet()
        self.closed = False
        """Long operations check it and stop."""
        self._workers = ThreadPoolExecutor(THREADS, thread_name_prefix="kubernetes")

    @property
    def namespace(self) -> str:
        """The settings', else the context's, else the pod's own inside a cluster, else `default`."""
        return self._settings.namespace or self._ready()[0].namespace

    @property
    def place(self) -> str:
        """How the cluster is found, in words: its context and server."""
        return self._ready()[0].place

    @property
    def address(self) -> str:
        """The server and the namespace: what a launch needs to be found again. Raises Unreachable."""
        return find_address(self._settings)

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        brief: bool = False,
    ) -> ApiAnswer:
        """Ask, and read the whole answer; HTTP errors are answers too. `brief` asks for no more than its metadata.

        Raises Unreachable (it is not known whether it was done) and TimedOut (it may have been done).
        """
        message = _Message(body, content_type, _METADATA if brief else _JSON)
        response = self._send(method, _join(path, query), message)
        return read_answer(response.status, response.data)

    def create(self, path: str, body: Any, connection: ThreadConnection | None = None) -> ApiAnswer:
        """Make an object; the answer has its metadata alone. Raises as `request`.

        Over a thread's own connection many are created, and the document of a success is not read.
        """
        reply = self._send("POST", path, _Message(body, accept=_METADATA), connection=connection)
        works = ApiAnswer(reply.status, {})
        return works if connection is not None and works.works else read_answer(reply.status, reply.data)

    @contextmanager
    def thread_connection(self) -> Iterator[ThreadConnection | None]:
        """A connection of the calling thread's own; None where requests go through the pool. Raises Unreachable."""
        connection = open_thread_connection(self._ready()[0], self._settings.request_timeout)
        try:
            yield connection
        finally:
            if connection is not None:
                connection.close()

    def read(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        """The bytes of an answer that is no JSON (a log). Raises the error of a refusal, Unreachable, TimedOut."""
        response = self._send("GET", _join(path, query))
        if response.status >= 300:
            raise to_error(read_answer(response.status, response.data), f"read {path}")
        return bytes(response.data)

    def stream(self, path: str, query: Mapping[str, Any] | None = None, timeout: float = 330.0) -> AnswerStream:
        """The lines of an answer that goes on; `timeout` is the longest silence in seconds.

        Raises the error of a refusal, Unreachable and TimedOut.
        """
        response = self._send("GET", _join(path, query), silence=timeout)
        if response.status >= 300:
            raise to_error(read_answer(response.status, response.data), f"follow {path}")
        stream = AnswerStream(response, f"follow {path}")
        with self._lock:
            self._streams.add(stream)
            late = self.closed
        if late:
            # Closed while it was being opened.
            response.close()
            raise Unreachable(_CLOSED)
        return stream

    def exec(
        self, namespace: str, pod: str, container: str, words: Sequence[str], timeout: float = 30.0
    ) -> tuple[int, str]:
        """Run words in a container: their exit code, and what they printed (both streams).

        Raises the error of a refusal, and Unreachable and TimedOut when the end is unknown; the process may go on then.
        """
        return self.execute(ExecCommand(namespace, pod, container, words), timeout)

    def execute(self, command: ExecCommand, timeout: float) -> tuple[int, str]:
        """`exec` of a command that reads input, or prints much. Raises CannotRun too."""
        done = run_command(self._open_socket(command), command, timeout)
        if isinstance(done, ApiAnswer) and done.status == 401:
            self._renew(self._headers)
            done = run_command(self._open_socket(command), command, timeout)
        if isinstance(done, ApiAnswer):
            raise to_error(done, f"run {command.words[0]} in pod {command.pod}")
        return done

    async def call(self, method: str, path: str, **options: Any) -> ApiAnswer:
        """`request` in one of this connection's threads."""
        return await self.run(partial(self.request, method, path, **options))

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """A blocking function in one of this connection's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, partial(function, *arguments))

    def close(self) -> None:
        """Close idle connections and threads; requests under way finish by themselves."""
        self.closed = True
        self._workers.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            login, self._login = self._login, None
            streams = list(self._streams)
        if login is not None:
            login.close()
        # Wakes the readers, which close them.
        for stream in streams:
            stream.close()

    def _send(
        self,
        method: str,
        url: str,
        message: _Message | None = None,
        *,
        silence: float | None = None,
        connection: ThreadConnection | None = None,
    ) -> Any:
        """The response. Retries once after renewing a refused login, and a GET once after a dropped connection."""
        message = message or _Message()
        sent = None if message.body is None else json.dumps(message.body, separators=(",", ":")).encode()
        kind = {} if sent is None else {"content-type": message.content_type}
        renewed = asked = False
        while True:
            login, authorization = self._ready()
            headers = {**authorization, "accept": message.accept, **kind}
            try:
                # The connection was authenticated by one login: no other may use it.
                straight = (
                    connection
                    if connection is not None and connection.login is login and not connection.broken
                    else None
                )
                response = self._exchange(login, (method, url, headers, sent), silence, straight)
            except _ConnectionDropped as error:
                if method != "GET" or asked:
                    raise Unreachable(error.message) from error
                asked = True
                continue
            if response.status != 401 or renewed or not self._renew(authorization):
                return response
            renewed = True

    def _exchange(
        self,
        login: ApiLogin,
        request: tuple[str, str, Mapping[str, str], bytes | None],
        silence: float | None,
        connection: ThreadConnection | None,
    ) -> Any:
        """One request; `silence` is None where the whole answer is wanted at once."""
        errors, timeouts = importlib.import_module("urllib3.exceptions"), importlib.import_module("urllib3")
        method, url, headers, body = request
        timeout = timeouts.Timeout(connect=CONNECT_SECONDS, read=silence or self._settings.request_timeout)
        try:
            if connection is not None:
                return connection.exchange(method, url, headers, body)
            response = login.server.urlopen(
                method,
                login.root + url,
                body=body,
                headers=headers,
                timeout=timeout,
                retries=False,
                redirect=False,
                preload_content=False,
            )
            if silence is None or response.status >= 300:
                response.read(cache_content=True)
                response.release_conn()
            return response
        except (errors.ReadTimeoutError, TimeoutError) as error:
            raise TimedOut(f"{login.place} took longer than {timeout.read_timeout:g} s to answer") from error
        except (errors.ProtocolError, http.client.HTTPException, ConnectionError) as error:
            raise _ConnectionDropped(f"{login.place}: the connection broke: {write_words(error)}") from error
        except errors.SSLError as error:
            remedy = "see `certificate-authority` and `tls-server-name` of the kubeconfig"
            raise Unreachable(f"{login.place} is not trusted: {write_words(error)}", remedy=remedy) from error
        except (errors.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"{login.place} does not answer: {write_words(error)}") from error

    def _ready(self) -> tuple[ApiLogin, dict[str, str]]:
        """The login and its headers; logs in at the first call."""
        with self._lock:
            if self.closed:
                raise Unreachable(_CLOSED)
            if self._login is None:
                self._login = self._log_in()
            if time.monotonic() - self._asked_at > _FRESH_SECONDS:
                headers = self._login_thread.run(self._login.authorize)
                self._headers = headers if headers != self._headers else self._headers
                self._asked_at = time.monotonic()
            return self._login, self._headers

    def _log_in(self) -> ApiLogin:
        """A new login. A failure is repeated for a while without another try: plug-ins may take seconds."""
        if self._failure is not None and time.monotonic() - self._failed_at < _RENEWAL_SECONDS:
            raise self._failure
        try:
            login = self._login_thread.run(lambda: log_in(self._settings, 2 * THREADS))
        except Unreachable as error:
            self._failure, self._failed_at = Unreachable(error.message, remedy=error.remedy), time.monotonic()
            raise
        self._failure = None
        return login

    def _renew(self, refused: Mapping[str, str]) -> bool:
        """Single-flight renewal after a refusal of these headers; whether to try again."""
        with self._lock:
            if self._headers is not refused:
                return True
            if time.monotonic() - self._renewed_at < _RENEWAL_SECONDS:
                return False
            self._renewed_at = time.monotonic()
            new = self._log_in()
            _refuse_other(self._login, new, self._settings.namespace)
            old, self._login = self._login, new
            self._headers = self._login_thread.run(self._login.authorize)
            self._asked_at = time.monotonic()
            if old is not None:
                old.pool.clear()
            return True

    def _open_socket(self, command: ExecCommand) -> ExecSocket:
        login, headers = self._ready()
        given = login.configuration
        tls: dict[str, Any] = {"context": _make_context(given)} if login.host.startswith("https") else {}
        if getattr(given, "tls_server_name", None):
            tls["server_hostname"] = given.tls_server_name
        proxy = importlib.import_module("urllib3.util").parse_url(given.proxy) if given.proxy else None
        options = {"http_proxy_host": proxy.host, "http_proxy_port": proxy.port, "proxy_type": "http"} if proxy else {}
        if given.no_proxy and options:
            options["http_no_proxy"] = given.no_proxy.split(",")
        return ExecSocket("ws" + login.host.removeprefix("http") + command.path, headers, tls, options)


def _refuse_other(old: ApiLogin | None, new: ApiLogin, namespace: str) -> None:
    """Raise Unreachable for a login that leads elsewhere: what is looked for would not be there, and count as gone."""
    if old is None or (old.host, namespace or old.namespace) == (new.host, namespace or new.namespace):
        return
    new.pool.clear()
    raise Unreachable(
        f"the kubeconfig leads to {new.place}, namespace {new.namespace}, now; it led to {old.place}, {old.namespace}",
        remedy="set `context` and `namespace` of this cluster, so that another current context changes nothing here",
    )


class _ConnectionDropped(Unreachable):
    """The connection ended before the answer."""


def _make_context(given: Any) -> ssl.SSLContext:
    """TLS as a login's configuration says. Raises Unreachable for certificates that cannot be read."""
    try:
        context = own_sockets(ssl.create_default_context(cafile=given.ssl_ca_cert or None))
        if not given.verify_ssl:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if given.cert_file:
            context.load_cert_chain(given.cert_file, given.key_file)
    except (OSError, ValueError) as error:
        raise Unreachable(f"the certificates of the login cannot be read: {write_words(error)}") from error
    return context


def open_connection(settings: Settings) -> Connection:
    """The connection that these settings describe; reads nothing and contacts nothing yet."""
    return Connection(settings)


def _join(path: str, query: Mapping[str, Any] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path
