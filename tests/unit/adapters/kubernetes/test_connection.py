"""The way to a cluster: logins, requests that fail, streams and commands."""

from __future__ import annotations

import asyncio
import gc
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi
from tests.waiting import wait_until

from overspan.adapters.kubernetes.api import connection as connection_module
from overspan.adapters.kubernetes.api import logins
from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.api.streams import AnswerStream
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import Denied, NotFound, Rejected, TimedOut, Unreachable

PODS = "/api/v1/namespaces/default/pods"
MAPS = "/api/v1/namespaces/default/configmaps"
Opener = Callable[..., Connection]


@pytest.fixture
def connect() -> Iterator[Opener]:
    """Connections that are closed after the test."""
    opened: list[Connection] = []

    def connect(**settings: Any) -> Connection:
        opened.append(open_connection(Settings.model_construct(**settings)))
        return opened[-1]

    yield connect
    for connection in opened:
        connection.close()


def write_config(path: Path, server: str, name: str, user: dict[str, Any] | None = None, **context: str) -> Path:
    """A kubeconfig with one context."""
    path.write_text(
        json.dumps(
            {
                "clusters": [{"name": name, "cluster": {"server": server}}],
                "users": [{"name": name, "user": user or {}}],
                "contexts": [{"name": name, "context": {"cluster": name, "user": name, **context}}],
                "current-context": name,
            }
        )
    )
    return path


def write_plugin(folder: Path, script: str) -> dict[str, Any]:
    """A user whose login is a program."""
    plugin = folder / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    version = "client.authentication.k8s.io/v1"
    return {"exec": {"command": str(plugin), "apiVersion": version, "interactiveMode": "Never"}}


def print_token(token: str) -> str:
    status = {"token": token}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    return f"echo '{json.dumps(credential)}'"


# --- logins ---


def test_where_a_cluster_is_is_known_without_a_login(connect: Opener, tmp_path: Path) -> None:
    user = write_plugin(tmp_path, f"touch {tmp_path}/ran; {print_token('t')}")
    config = write_config(tmp_path / "config", "https://one:6443/", "x", user, namespace="lab")
    assert connect(kubeconfig=str(config)).address == "https://one:6443, namespace lab"
    assert connect(kubeconfig=str(config), namespace="own").address == "https://one:6443, namespace own"
    assert not (tmp_path / "ran").exists()
    with pytest.raises(Unreachable, match="cannot be read"):
        _ = connect(kubeconfig=str(config), context="other").address


def test_nothing_is_read_or_loaded_before_the_first_request() -> None:
    code = (
        "import sys; from overspan.adapters.kubernetes.api.connection import open_connection\n"
        "from overspan.adapters.kubernetes.settings import Settings\n"
        "open_connection(Settings(kubeconfig='/none/such')).close()\n"
        "assert not {'kubernetes', 'urllib3', 'websocket'} & set(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


def test_the_official_client_is_loaded_in_one_place() -> None:
    folder = Path(logins.__file__).parent
    using = {
        path.name
        for path in folder.glob("*.py")
        if re.search(r"[\"' ]kubernetes\.(client|config)|import kubernetes", path.read_text())
    }
    assert using == {"logins.py"}


def test_the_namespace_is_the_settings_or_the_contexts(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    config = str(write_config(tmp_path / "a", api.url, "one", namespace="training"))
    assert connect(kubeconfig=config).namespace == "training"
    assert connect(kubeconfig=config, namespace="mine").namespace == "mine"
    bare = str(write_config(tmp_path / "b", api.url, "one"))
    assert connect(kubeconfig=bare).namespace == "default"


def test_kubeconfigs_are_merged_and_the_first_choice_counts(
    api: KubernetesApi, tmp_path: Path, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = write_config(tmp_path / "a", api.url, "one", namespace="first")
    second = write_config(tmp_path / "b", api.url, "two", namespace="second")
    monkeypatch.setenv("KUBECONFIG", f"{first}:{tmp_path}/missing:{second}")
    assert connect().namespace == "first"
    assert connect(context="two").namespace == "second"
    assert connect(context="two").request("GET", "/version").works
    assert connect().place == f"context one ({api.url})"


def test_a_context_that_is_not_there(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    config = str(write_config(tmp_path / "a", api.url, "one"))
    with pytest.raises(Unreachable, match="no context 'two'") as caught:
        connect(kubeconfig=config, context="two").request("GET", "/version")
    assert "one" in caught.value.remedy


@pytest.mark.parametrize("text", ["", "{{", "a: [1", "contexts: 3", "- 1", "clusters: []\nusers: []\ncontexts: []"])
def test_a_kubeconfig_that_is_broken(text: str, tmp_path: Path, connect: Opener) -> None:
    (tmp_path / "broken").write_text(text)
    with pytest.raises(Unreachable) as caught:
        connect(kubeconfig=str(tmp_path / "broken")).request("GET", "/version")
    assert str(tmp_path / "broken") in caught.value.message
    assert caught.value.remedy


def test_no_kubeconfig_at_all(tmp_path: Path, connect: Opener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(Unreachable, match="no kubeconfig") as caught:
        connect().request("GET", "/version")
    assert "KUBECONFIG" in caught.value.remedy


def test_inside_a_cluster_the_pods_own_account_is_used(
    tmp_path: Path, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    loading = importlib.import_module("kubernetes.config.incluster_config")
    for name, text in (("token", "secret"), ("ca.crt", "certificate"), ("namespace", "own\n")):
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(loading, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(loading, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    monkeypatch.setattr(logins, "_NAMESPACE_FILE", str(tmp_path / "namespace"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    login = logins.log_in(Settings(), 4)
    assert (login.host, login.namespace) == ("https://10.0.0.1:443", "own")
    assert login.authorize()["authorization"].lower() == "bearer secret"


def test_without_the_official_client(connection: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "kubernetes.config.kube_config", None)
    with pytest.raises(Unreachable) as caught:
        connection.request("GET", "/version")
    assert caught.value.remedy == "pip install 'overspan[kubernetes]'"


def test_a_login_by_a_program(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    api.tokens = {"fresh"}
    config = write_config(tmp_path / "a", api.url, "one", write_plugin(tmp_path, print_token("fresh")))
    before = config.read_bytes()
    assert connect(kubeconfig=str(config)).request("GET", "/version").works
    assert config.read_bytes() == before


def test_a_program_that_fails_says_why(
    api: KubernetesApi, tmp_path: Path, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_RENEWAL_SECONDS", 3600.0)
    api.tokens = {"fresh"}
    user = write_plugin(
        tmp_path, f"echo x >> {tmp_path}/count; echo 'the session is over: run cloud login' >&2; exit 1"
    )
    config = write_config(tmp_path / "a", api.url, "one", user)
    connection = connect(kubeconfig=str(config))
    for _ in range(3):
        with pytest.raises(Unreachable, match="run cloud login"):
            connection.request("GET", "/version")
    assert api.requests == []
    assert (tmp_path / "count").read_text() == "x\n", "a program that failed is not run for each request"


def test_a_program_that_waits_for_somebody_holds_nobody_up(
    api: KubernetesApi, tmp_path: Path, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_LOGIN_SECONDS", 0.5)
    monkeypatch.setattr(connection_module, "_RENEWAL_SECONDS", 0.0)
    os.mkfifo(tmp_path / "answer")
    script = f"read line < {tmp_path}/answer\n{print_token('fresh')}"
    config = write_config(tmp_path / "a", api.url, "one", write_plugin(tmp_path, script))
    connection = connect(kubeconfig=str(config))
    for _ in range(2):
        with pytest.raises(Unreachable, match="takes too long"):
            connection.request("GET", "/version")
    (tmp_path / "answer").write_text("yes\n")
    shutil.copy(write_config(tmp_path / "b", api.url, "one"), config)

    def ask() -> bool:
        try:
            return connection.request("GET", "/version").works
        except Unreachable:
            return False

    wait_until(ask)


def test_an_expired_token_is_asked_for_once_more(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    api.tokens = {"t1"}
    count = tmp_path / "count"
    script = f'echo x >> {count}; n=$(wc -l < {count} | tr -d " ")\n' + print_token("tNUMBER").replace("NUMBER", "'$n'")
    config = write_config(tmp_path / "a", api.url, "one", write_plugin(tmp_path, script))
    connection = connect(kubeconfig=str(config))
    assert connection.request("GET", "/version").works
    api.tokens = {"t2"}
    assert connection.request("POST", MAPS, body={"metadata": {"name": "made"}}).status == 201
    assert count.read_text() == "x\nx\n"


def test_many_requests_renew_one_login(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    api.tokens = {"old"}
    (tmp_path / "token").write_text("old")
    config = write_config(tmp_path / "a", api.url, "one", {"tokenFile": str(tmp_path / "token")})
    connection = connect(kubeconfig=str(config))
    assert connection.request("GET", "/version").works
    held = api.hold("GET", "pods", times=8)

    async def ask() -> list[int]:
        calls = [asyncio.create_task(connection.call("GET", PODS)) for _ in range(8)]
        await asyncio.to_thread(wait_until, lambda: api.count("GET", "pods") == 8)
        # All of them are under way with the old token when it expires.
        (tmp_path / "token").write_text("new")
        api.tokens = {"new"}
        held.free.set()
        return [answer.status for answer in await asyncio.gather(*calls)]

    assert asyncio.run(ask()) == [200] * 8
    assert api.count("GET", "pods") == 16


def test_a_request_that_still_has_an_older_login_is_sent_all_the_same(
    api: KubernetesApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert connection.request("GET", "/version").works
    old = connection._ready()
    old[0].pool.clear()
    connection._login = None
    assert connection._ready()[0] is not old[0]
    monkeypatch.setattr(connection, "_ready", lambda: old)
    assert connection.request("POST", MAPS, body={"metadata": {"name": "one"}}).works


def test_idle_connections_go_with_the_end(api: KubernetesApi, connection: Connection) -> None:
    connection.request("GET", "/version")
    server = weakref.ref(connection._ready()[0].server)
    connection.close()
    gc.collect()
    assert server() is None


def test_a_kubeconfig_is_never_written(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    api.tokens = {"fresh"}
    credential = {"credential": {"access_token": "fresh", "token_expiry": "2099-01-01T00:00:00Z"}}
    program = tmp_path / "program"
    program.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    program.chmod(0o755)
    # The official client would store what such a provider gives.
    provider = {"name": "gcp", "config": {"cmd-path": str(program), "cmd-args": "x"}}
    config = write_config(tmp_path / "a", api.url, "one", {"auth-provider": provider})
    before = config.read_bytes()
    assert connect(kubeconfig=str(config)).request("GET", "/version").works
    assert config.read_bytes() == before


def test_a_login_that_stays_refused_is_an_answer_and_no_storm(
    api: KubernetesApi, tmp_path: Path, connect: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "_RENEWAL_SECONDS", 3600.0)
    api.tokens = {"good"}
    count = tmp_path / "count"
    script = f"echo x >> {count}\n{print_token('bad')}"
    config = write_config(tmp_path / "a", api.url, "one", write_plugin(tmp_path, script))
    connection = connect(kubeconfig=str(config))
    assert [connection.request("GET", PODS).status for _ in range(4)] == [401] * 4
    assert count.read_text() == "x\nx\n"


# --- requests that fail ---


def test_a_lost_answer_is_not_known_to_have_failed(api: KubernetesApi, connection: Connection) -> None:
    api.lose_reply("POST", "configmaps")
    with pytest.raises(Unreachable):
        connection.request("POST", MAPS, body={"metadata": {"name": "made"}})
    assert connection.request("GET", f"{MAPS}/made").works
    assert api.count("POST", "configmaps") == 1


def test_a_question_that_meets_a_closed_connection_is_asked_again(api: KubernetesApi, connection: Connection) -> None:
    connection.request("GET", "/version")
    api.drop("GET", "pods")
    assert connection.request("GET", PODS).works
    api.drop("GET", "pods", times=2)
    with pytest.raises(Unreachable, match="fake"):
        connection.request("GET", PODS)


def test_a_server_that_is_down_and_back(api: KubernetesApi, connection: Connection) -> None:
    assert connection.request("GET", "/version").works
    api.stop()
    with pytest.raises(Unreachable) as caught:
        connection.request("GET", "/version")
    assert api.url in caught.value.message and "refused" in caught.value.message
    api.start()
    assert connection.request("GET", "/version").works


def test_a_slow_server(api: KubernetesApi, settings: Settings, connect: Opener) -> None:
    held = api.hold("GET", "pods")
    connection = connect(kubeconfig=settings.kubeconfig, request_timeout=0.2)
    with pytest.raises(TimedOut, match=r"0\.2 s"):
        connection.request("GET", PODS)
    held.free.set()

    def ask() -> bool:
        try:
            return connection.request("GET", PODS).works
        except TimedOut:
            # As slow as that for once.
            return False

    wait_until(ask)


@pytest.mark.parametrize("status", [403, 404, 409, 422, 429, 500, 503])
def test_refusals_are_answers(api: KubernetesApi, connection: Connection, status: int) -> None:
    api.refuse("GET", "pods", status, "no, in its own words")
    answer = connection.request("GET", PODS)
    assert (answer.status, answer.message) == (status, "no, in its own words")


def test_queries_are_encoded(api: KubernetesApi, connection: Connection) -> None:
    connection.request("GET", PODS, query={"labelSelector": "a in (b,c),d=e&f", "limit": 5})
    assert api.requests[-1].query == {"labelSelector": "a in (b,c),d=e&f", "limit": "5"}


def test_calls_run_beside_each_other(api: KubernetesApi, connection: Connection) -> None:
    async def ask() -> int:
        held = api.hold("GET", "configmaps")
        waiting = asyncio.create_task(connection.call("GET", MAPS))
        assert await asyncio.to_thread(held.met.wait, 60)
        answer = await connection.call("GET", PODS)
        held.free.set()
        return answer.status + (await waiting).status

    assert asyncio.run(ask()) == 400


# --- streams ---


def start_pod(api: KubernetesApi, connection: Connection, name: str = "talks") -> None:
    spec = {"containers": [{"name": "main"}]}
    assert connection.request("POST", PODS, body={"metadata": {"name": name}, "spec": spec}).works
    api.pods.bind(name)
    api.pods.run(name)


def test_a_stream_gives_each_line_when_it_is_whole(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection)
    lines: list[bytes] = []
    stream = connection.stream(f"{PODS}/talks/log", {"follow": "true"})
    reader = threading.Thread(target=lambda: lines.extend(stream))
    reader.start()
    api.streams.write_log("talks", "one")
    wait_until(lambda: lines == [b"one"])
    api.streams.write_log("talks", "x" * 300_000 + "\nthree")
    wait_until(lambda: len(lines) == 3)
    api.pods.finish("talks")
    reader.join(60)
    assert [len(line) for line in lines] == [3, 300_000, 5]


def test_a_stream_that_breaks(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection)
    api.streams.write_log("talks", "one")
    stream = iter(connection.stream(f"{PODS}/talks/log", {"follow": "true"}))
    assert next(stream) == b"one"
    api.streams.cut()
    with pytest.raises(Unreachable, match="talks"):
        next(stream)


def test_a_stream_that_is_silent(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection)

    def begin() -> AnswerStream | None:
        try:
            return connection.stream(f"{PODS}/talks/log", {"follow": "true"}, timeout=0.1)
        except TimedOut:
            # Its beginning came late.
            return None

    stream = wait_until(begin)
    with pytest.raises(TimedOut, match="silent"):
        list(stream or ())


def test_a_stream_is_closed_from_another_thread(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection)
    stream = connection.stream(f"{PODS}/talks/log", {"follow": "true"})
    lines: list[bytes] = []
    reader = threading.Thread(target=lambda: lines.extend(stream))
    reader.start()
    api.streams.write_log("talks", "one")
    wait_until(lambda: lines)
    stream.close()
    reader.join(60)
    assert not reader.is_alive()


def test_a_stream_that_is_refused(api: KubernetesApi, connection: Connection) -> None:
    with pytest.raises(NotFound, match="nobody"):
        connection.stream(f"{PODS}/nobody/log")
    api.denied = {("watch", "pods")}
    with pytest.raises(Denied):
        connection.stream(PODS, {"watch": "1"})
    api.refuse("GET", "pods", 503)
    with pytest.raises(Unreachable):
        connection.stream(PODS, {"watch": "1"})


# --- commands ---


def test_commands(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection, "busy")
    api.exec.reply = lambda run: (7, "what it printed")
    assert connection.exec("default", "busy", "main", ["kill", "-s", "USR1", "1"]) == (7, "what it printed")
    assert api.exec.runs == [("default", "busy", "main", ("kill", "-s", "USR1", "1"))]


def test_a_command_whose_end_is_not_told_has_no_exit_code(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection, "busy")
    api.exec.reply = lambda run: None
    with pytest.raises(Unreachable, match="broke"):
        connection.exec("default", "busy", "main", ["true"])
    api.exec.polite = True
    with pytest.raises(Unreachable, match="closed before its end"):
        connection.exec("default", "busy", "main", ["true"])


def test_a_command_that_is_refused(api: KubernetesApi, connection: Connection) -> None:
    with pytest.raises(NotFound, match="nobody"):
        connection.exec("default", "nobody", "main", ["true"])
    start_pod(api, connection, "busy")
    api.denied = {("create", "pods/exec")}
    with pytest.raises(Denied, match="pods/exec"):
        connection.exec("default", "busy", "main", ["true"])
    api.denied.clear()
    api.pods.finish("busy")
    with pytest.raises(Rejected, match="stopped"):
        connection.exec("default", "busy", "main", ["true"])
    api.stop()
    with pytest.raises(Unreachable):
        connection.exec("default", "busy", "main", ["true"])


def test_a_command_that_does_not_end(api: KubernetesApi, connection: Connection) -> None:
    start_pod(api, connection, "busy")
    free = threading.Event()
    api.exec.reply = lambda run: (0, "") if free.wait(120) else None
    with pytest.raises(TimedOut):
        connection.exec("default", "busy", "main", ["sleep", "9"], timeout=0.2)
    free.set()


def test_a_command_after_the_token_has_expired(api: KubernetesApi, tmp_path: Path, connect: Opener) -> None:
    api.tokens = {"old"}
    (tmp_path / "token").write_text("old")
    config = write_config(tmp_path / "a", api.url, "one", {"tokenFile": str(tmp_path / "token")})
    connection = connect(kubeconfig=str(config))
    start_pod(api, connection, "busy")
    (tmp_path / "token").write_text("new")
    api.tokens = {"new"}
    assert connection.exec("default", "busy", "main", ["true"]) == (0, "")
