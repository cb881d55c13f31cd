"""Logins to a cluster's API by the official client, which is imported here alone, at the first login.

A kubeconfig is read and never written.
"""

from __future__ import annotations

import importlib
import logging
import os
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from overspan.adapters.kubernetes.api.sockets import own_sockets
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import OverspanError, Unreachable

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
_NAMESPACE_FILE = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"


class ApiLogin(NamedTuple):
    """One login: the official client's configuration and pools, and what the kubeconfig says beside."""

    configuration: Any
    pool: Any
    place: str
    namespace: str
    server: Any
    """What takes requests: the server's own pool, which is not to be found anew for each."""
    root: str
    """What comes before their paths."""

    @property
    def host(self) -> str:
        """The server's URL, without a slash at its end."""
        return str(self.configuration.host)

    def close(self) -> None:
        """Close idle connections; those in use are closed by their users."""
        self.pool.clear()
        if self.server is not self.pool:
            self.server.close()

    def authorize(self) -> dict[str, str]:
        """The login's headers; a token that is about to expire is renewed before. Raises Unreachable."""
        try:
            header = self.configuration.auth_settings().get("BearerToken") or {}
        except Exception as error:
            # The official client reads files and runs plug-ins here.
            raise Unreachable(f"the login to {self.place} cannot be renewed: {write_words(error)}") from error
        return {"authorization": str(header["value"])} if header.get("value") else {}


class _LoginErrors(logging.Handler):
    """Captures what the official client logs while it logs in: it reports a failed plug-in in no other way."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []
        self._thread = threading.get_ident()

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it, if it is of this thread."""
        if record.thread == self._thread:
            self.texts.append(record.getMessage())


def log_in(settings: Settings, connections: int) -> ApiLogin:
    """Log in as the kubeconfig says, or as the pod this runs in; so many connections are kept.

    Raises Unreachable with the remedy.
    """
    try:
        loading = importlib.import_module("kubernetes.config.kube_config")
        client, rest = importlib.import_module("kubernetes.client"), importlib.import_module("kubernetes.client.rest")
    except ImportError as error:
        remedy = "pip install 'overspan[kubernetes]'"
        raise Unreachable(f"the Python package kubernetes is needed for this cluster: {error}", remedy=remedy) from None
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = connections
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
        pool.connection_pool_kw["ssl_context"] = _make_context(configuration)
    except OverspanError:
        raise
    except Exception as error:
        # The official client meets a broken file with errors of any kind.
        remedy = "try the same with `kubectl cluster-info`"
        raise Unreachable(f"the login to the cluster failed ({given}): {write_words(error)}", remedy=remedy) from error
    return ApiLogin(configuration, pool, place, namespace, *_find_server(configuration, pool))


def _make_context(configuration: Any) -> ssl.SSLContext:
    """TLS as urllib3 would make it; it adds the certificates that the configuration names itself."""
    needs = ssl.CERT_REQUIRED if configuration.verify_ssl else ssl.CERT_NONE
    context = own_sockets(importlib.import_module("urllib3.util.ssl_").create_urllib3_context(cert_reqs=needs))
    if configuration.verify_ssl and not configuration.ssl_ca_cert:
        context.load_default_certs()
    return context


def find_address(settings: Settings) -> str:
    """The server and the namespace that a login would lead to, read from the files alone. Raises Unreachable.

    No plug-in is run, which may take seconds.
    """
    given = settings.kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config"
    files = [name for name in given.split(os.pathsep) if name and Path(name).expanduser().exists()]
    if not files and "KUBERNETES_SERVICE_HOST" in os.environ and not (settings.kubeconfig or settings.context):
        host = f"{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ.get('KUBERNETES_SERVICE_PORT', '443')}"
        return f"https://{host}, namespace {settings.namespace or _read_namespace()}"
    try:
        loaded = importlib.import_module("yaml")
        documents = [loaded.safe_load(Path(name).expanduser().read_text()) or {} for name in files]
        name = settings.context or next(filter(None, (one.get("current-context") for one in documents)))
        context = _find_named(documents, "contexts", name)["context"]
        server = str(_find_named(documents, "clusters", context["cluster"])["cluster"]["server"]).rstrip("/")
    except Exception as error:
        # The login itself reports what is wrong in detail.
        raise Unreachable(f"where the cluster is cannot be read ({given}): {write_words(error)}") from error
    return f"{server}, namespace {settings.namespace or context.get('namespace') or 'default'}"


def _find_named(documents: Sequence[Any], key: str, name: str) -> Any:
    """The first entry of that name in several kubeconfigs. Raises StopIteration."""
    return next(item for one in documents for item in one.get(key) or [] if item.get("name") == name)


def _find_server(configuration: Any, pool: Any) -> tuple[Any, str]:
    """What takes the requests to a server, and what comes before their paths."""
    host = str(configuration.host)
    url = importlib.import_module("urllib3.util").parse_url(host)
    if url.scheme != "https" and configuration.proxy:
        # Such a proxy needs the absolute URL.
        return pool, host
    return pool.connection_from_url(host), (url.path or "").rstrip("/")


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
    complaints = _LoginErrors()
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


def write_words(error: BaseException) -> str:
    """What an error of a library says, in one line."""
    inner = error.args[1] if len(error.args) > 1 and isinstance(error.args[1], BaseException) else error
    return " ".join(str(inner).split()) or type(inner).__name__


T = TypeVar("T")

_LATE = "the login to the cluster takes too long: its plug-in may wait for a user's input"
_REMEDY = "log in by hand where it runs, and try `kubectl cluster-info`"


class BoundedThread:
    """Runs one function at a time in a thread of its own, for at most `seconds`. Not for use by several threads.

    A credential plug-in may wait for input of a user who is not there.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._late: Future[Any] | None = None

    def run(self, function: Callable[[], T]) -> T:
        """Its result or error. Unreachable when it takes too long, and at once while a late one still runs."""
        if self._late is not None and not self._late.done():
            raise Unreachable(_LATE, remedy=_REMEDY)
        done: Future[Any] = Future()
        self._late = done

        def carry_out() -> None:
            try:
                done.set_result(function())
            except BaseException as error:
                done.set_exception(error)

        threading.Thread(target=carry_out, name="kubernetes login", daemon=True).start()
        try:
            return cast(T, done.result(self._seconds))
        except FutureTimeout:
            raise Unreachable(_LATE, remedy=_REMEDY) from None
