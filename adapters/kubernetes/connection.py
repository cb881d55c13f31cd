"""The way to one cluster's API: authentication by the official client, requests by its pool of connections.

The official client is imported here alone, at the first request. A kubeconfig is read and never written.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeVar
from urllib.parse import urlencode

from overspan.adapters.kubernetes.answers import Answer, read_answer, to_error
from overspan.adapters.kubernetes.executing import Command, Socket, run_command
from overspan.adapters.kubernetes.plugins import Limit
from overspan.adapters.kubernetes.settings import Settings
from overspan.adapters.kubernetes.streams import Stream
from overspan.bridge.model.errors import OverspanError, TimedOut, Unreachable

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
_SOCKET_OPTIONS = (
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    *(
        (socket.IPPROTO_TCP, getattr(socket, name), value)
        for name, value in (
            ("TCP_KEEPIDLE", 15),
            ("TCP_KEEPINTVL", 5),
            ("TCP_KEEPCNT", 3),
            ("TCP_USER_TIMEOUT", 30_000),
        )
        if hasattr(socket, name)
    ),
)
"""A peer that is gone is known within half a minute: a watch would wait for it for ever otherwise (tcp(7))."""
_LOGIN_SECONDS = 60.0
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class _Message(NamedTuple):
    """What is sent, and which form of the answer is wanted."""

    body: Any = None
    content_type: str = _JSON
    accept: str = _JSON


class Way(NamedTuple):
    """One login: the official client's configuration and pool, and what the kubeconfig says beside."""

    configuration: Any
    pool: Any
    place: str
    namespace: str

    @property
    def host(self) -> str:
        """The server's URL, without a slash at its end."""
        return str(self.configuration.host)

    def authorize(self) -> dict[str, str]:
        """The login's headers; a token that is about to expire is renewed before. Raises Unreachable."""
        try:
            header = self.configuration.auth_settings().get("BearerToken") or {}
        except Exception as error:
            # The official client reads files and runs plug-ins here.
            raise Unreachable(f"the login to {self.place} cannot be renewed: {_words(error)}") from error
        return {"authorization": str(header["value"])} if header.get("value") else {}


class Connection:
    """Requests to one cluster. Blocking and safe to use from any thread; nothing is contacted before the first."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.RLock()
        self._way: Way | None = None
        self._login = Limit(_LOGIN_SECONDS)
        self._headers: dict[str, str] = {}
        self._asked_at = self._renewed_at = self._failed_at = float("-inf")
        self._failure: Unreachable | None = None
        self._workers = ThreadPoolExecutor(THREADS, thread_name_prefix="kubernetes")

    @property
    def namespace(self) -> str:
        """The settings', else the context's, else the pod's own inside a cluster, else `default`."""
        return self._settings.namespace or self._ready()[0].namespace

    @property
    def place(self) -> str:
        """How the cluster is found, in words: its context and server."""
        return self._ready()[0].place

    def request(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, Any] | None = None,
        body: Any = None,
        content_type: str = _JSON,
        brief: bool = False,
    ) -> Answer:
        """Ask, and read the whole answer; HTTP errors are answers too. `brief` asks for no more than its metadata.

        Raises Unreachable (it is not known whether it was done) and TimedOut (it may have been done).
        """
        message = _Message(body, content_type, _METADATA if brief else _JSON)
        response = self._send(method, _join(path, query), message)
        return read_answer(response.status, response.data)

    def read(self, path: str, query: Mapping[str, Any] | None = None) -> bytes:
        """The bytes of an answer that is no JSON (a log). Raises the error of a refusal, Unreachable, TimedOut."""
        response = self._send("GET", _join(path, query))
        if response.status >= 300:
            raise to_error(read_answer(response.status, response.data), f"read {path}")
        return bytes(response.data)

    def stream(self, path: str, query: Mapping[str, Any] | None = None, timeout: float = 330.0) -> Stream:
        """The lines of an answer that goes on; `timeout` is the longest silence in seconds.

        Raises the error of a refusal, Unreachable and TimedOut.
        """
        response = self._send("GET", _join(path, query), silence=timeout)
        if response.status >= 300:
            raise to_error(read_answer(response.status, response.data), f"follow {path}")
        return Stream(response, f"follow {path}")

    def exec(
        self, namespace: str, pod: str, container: str, words: Sequence[str], timeout: float = 30.0
    ) -> tuple[int, str]:
        """Run words in a container: their exit code, and what they printed (both streams).

        Raises the error of a refusal, Unreachable when the end is not told, and TimedOut; the process may go on then.
        """
        command = Command(namespace, pod, container, words)
        done = run_command(self._open_socket(command), timeout)
        if isinstance(done, Answer) and done.status == 401:
            self._renew(self._headers)
            done = run_command(self._open_socket(command), timeout)
        if isinstance(done, Answer):
            raise to_error(done, f"run {words[0]} in pod {pod}")
        return done

    async def call(self, method: str, path: str, **options: Any) -> Answer:
        """`request` in one of this connection's threads."""
        return await self.run(partial(self.request, method, path, **options))

    async def run(self, function: Callable[..., T], *arguments: Any) -> T:
        """A blocking function in one of this connection's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._workers, partial(function, *arguments))

    def close(self) -> None:
        """Let go of idle connections and threads; requests under way end by themselves."""
        self._workers.shutdown(wait=False, cancel_futures=True)
        with self._lock:
            if self._way is not None:
                self._way.pool.clear()

    def _send(self, method: str, url: str, message: _Message | None = None, silence: float | None = None) -> Any:
        """The response; a refused login is renewed once, and a question that met a closed connection asked again."""
        message = message or _Message()
        sent = None if message.body is None else json.dumps(message.body, separators=(",", ":")).encode()
        kind = {} if sent is None else {"content-type": message.content_type}
        renewed = asked = False
        while True:
            way, login = self._ready()
            headers = {**login, "accept": message.accept, **kind}
            try:
                response = self._exchange(way, (method, url, headers, sent), silence)
            except _Dropped as error:
                if method != "GET" or asked:
                    raise Unreachable(error.message) from error
                asked = True
                continue
            if response.status != 401 or renewed or not self._renew(login):
                return response
            renewed = True

    def _exchange(
        self, way: Way, request: tuple[str, str, Mapping[str, str], bytes | None], silence: float | None
    ) -> Any:
        """One request; `silence` is None where the whole answer is wanted at once."""
        errors, timeouts = importlib.import_module("urllib3.exceptions"), importlib.import_module("urllib3")
        method, url, headers, body = request
        timeout = timeouts.Timeout(connect=CONNECT_SECONDS, read=silence or self._settings.request_timeout)
        try:
            response = way.pool.request(
                method,
                way.host + url,
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
        except errors.ReadTimeoutError as error:
            raise TimedOut(f"{way.place} took longer than {timeout.read_timeout:g} s to answer") from error
        except errors.ProtocolError as error:
            raise _Dropped(f"{way.place}: the connection broke: {_words(error)}") from error
        except errors.SSLError as error:
            remedy = "see `certificate-authority` and `tls-server-name` of the kubeconfig"
            raise Unreachable(f"{way.place} is not trusted: {_words(error)}", remedy=remedy) from error
        except (errors.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"{way.place} does not answer: {_words(error)}") from error

    def _ready(self) -> tuple[Way, dict[str, str]]:
        """The login and its headers; logs in first where nobody has."""
        with self._lock:
            if self._way is None:
                self._way = self._log_in()
            if time.monotonic() - self._asked_at > _FRESH_SECONDS:
                headers = self._login.run(self._way.authorize)
                self._headers = headers if headers != self._headers else self._headers
                self._asked_at = time.monotonic()
            return self._way, self._headers

    def _log_in(self) -> Way:
        """A new login; one that failed is not tried again at once, for it may be a plug-in that takes seconds."""
        if self._failure is not None and time.monotonic() - self._failed_at < _RENEWAL_SECONDS:
            raise self._failure
        try:
            way = self._login.run(lambda: log_in(self._settings))
        except Unreachable as error:
            self._failure, self._failed_at = Unreachable(error.message, remedy=error.remedy), time.monotonic()
            raise
        self._failure = None
        return way

    def _renew(self, refused: Mapping[str, str]) -> bool:
        """Log in anew after a refusal of these headers, unless somebody just did; whether to try again."""
        with self._lock:
            if self._headers is not refused:
                return True
            if time.monotonic() - self._renewed_at < _RENEWAL_SECONDS:
                return False
            self._renewed_at = time.monotonic()
            old, self._way = self._way, self._log_in()
            self._headers = self._login.run(self._way.authorize)
            self._asked_at = time.monotonic()
            if old is not None:
                old.pool.clear()
            return True

    def _open_socket(self, command: Command) -> Socket:
        way, headers = self._ready()
        given = way.configuration
        tls: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED if given.verify_ssl else ssl.CERT_NONE}
        for name, key in (("ssl_ca_cert", "ca_certs"), ("cert_file", "certfile"), ("key_file", "keyfile")):
            if getattr(given, name):
                tls[key] = getattr(given, name)
        if not given.verify_ssl:
            tls["check_hostname"] = False
        if getattr(given, "tls_server_name", None):
            tls["server_hostname"] = given.tls_server_name
        proxy = importlib.import_module("urllib3.util").parse_url(given.proxy) if given.proxy else None
        options = {"http_proxy_host": proxy.host, "http_proxy_port": proxy.port, "proxy_type": "http"} if proxy else {}
        if given.no_proxy and options:
            options["http_no_proxy"] = given.no_proxy.split(",")
        return Socket("ws" + way.host.removeprefix("http") + command.path, headers, tls, options)


class _Dropped(Unreachable):
    """The connection ended before the answer."""


class _Complaints(logging.Handler):
    """What the official client logs while it logs in: it has no other word for a plug-in that failed."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, if it is of this thread."""
        if record.thread == self._thread:
            self.texts.append(record.getMessage())


def open_connection(settings: Settings) -> Connection:
    """The connection that these settings describe; reads nothing and contacts nothing yet."""
    return Connection(settings)


def log_in(settings: Settings) -> Way:
    """Log in as the kubeconfig says, or as the pod this runs in. Raises Unreachable with the remedy."""
    try:
        loading = importlib.import_module("kubernetes.config.kube_config")
        client, rest = importlib.import_module("kubernetes.client"), importlib.import_module("kubernetes.client.rest")
    except ImportError as error:
        remedy = "pip install 'overspan[kubernetes]'"
        raise Unreachable(f"the Python package kubernetes is needed for this cluster: {error}", remedy=remedy) from None
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 2 * THREADS
    configuration.retries = False
    configuration.socket_options = _SOCKET_OPTIONS
    given = settings.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [name for name in given.split(os.pathsep) if name and Path(name).expanduser().exists()]
    try:
        if files:
            place, namespace = _read_kubeconfig(loading, files, settings.context, configuration)
        elif settings.kubeconfig or settings.context or "KUBERNETES_SERVICE_HOST" not in os.environ:
            remedy = "set KUBECONFIG, or `kubeconfig` of this cluster in the configuration file"
            raise Unreachable(f"there is no kubeconfig ({given})", remedy=remedy)
        else:
            importlib.import_module("kubernetes.config").load_incluster_config(client_configuration=configuration)
            place, namespace = f"the cluster of this pod ({configuration.host})", _read_namespace()
        pool = rest.RESTClientObject(configuration).pool_manager
    except OverspanError:
        raise
    except Exception as error:
        # The official client meets a broken file with errors of any kind.
        remedy = "try the same with `kubectl cluster-info`"
        raise Unreachable(f"the login to the cluster failed ({given}): {_words(error)}", remedy=remedy) from error
    return Way(configuration, pool, place, namespace)


def _read_kubeconfig(loading: Any, files: Sequence[str], context: str, configuration: Any) -> tuple[str, str]:
    """Fill the configuration; the context's place in words, and its namespace."""
    merged = loading.KubeConfigMerger(os.pathsep.join(files))
    # kubectl takes the first file's choice; the official client the last one's.
    chosen = [found["current-context"] for found in merged.config_files.values() if found.get("current-context")]
    name = context or (chosen[0] if chosen else "")
    known = [item["name"] for item in merged.config["contexts"].value] if merged.config else []
    if name not in known:
        remedy = f"contexts there are: {', '.join(known) or 'none'}; set `context` of this cluster to one"
        what = f"no context {name!r}" if name else "no current context"
        raise Unreachable(f"there is {what} in {os.pathsep.join(files)}", remedy=remedy)
    complaints = _Complaints()
    logging.getLogger().addHandler(complaints)
    try:
        # Without a persister nothing is ever written back.
        loader = loading.KubeConfigLoader(merged.config, active_context=name, config_base_path=None)
        loader.load_and_set(configuration)
    finally:
        logging.getLogger().removeHandler(complaints)
    if complaints.texts and not configuration.api_key and not configuration.cert_file:
        remedy = "run the plug-in's own login, and try `kubectl cluster-info`"
        raise Unreachable(f"the login of context {name} failed: {'; '.join(complaints.texts)}", remedy=remedy)
    chosen_namespace = loader.current_context["context"].get("namespace")
    return f"context {name} ({configuration.host})", chosen_namespace or "default"


def _read_namespace() -> str:
    try:
        return Path(_NAMESPACE_FILE).read_text().strip() or "default"
    except OSError:
        return "default"


def _join(path: str, query: Mapping[str, Any] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _words(error: BaseException) -> str:
    """What an error of a library says, in one line."""
    inner = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], BaseException) else error
    return " ".join(str(inner).split()) or type(inner).__name__
