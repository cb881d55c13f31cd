"""Lanes: many requests by one connection, and what becomes of them when it breaks or the login expires."""

from __future__ import annotations

import asyncio
import contextlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.fakes.kubernetes_api import KubernetesApi

from overspan.adapters.kubernetes.api.calls import CREATORS, Calls
from overspan.adapters.kubernetes.api.connection import Connection, open_connection
from overspan.adapters.kubernetes.api.logins import ApiLogin
from overspan.adapters.kubernetes.api.thread_connections import open_thread_connection
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import TimedOut, Unreachable

MAPS = "/api/v1/namespaces/default/configmaps"
MANY = 100


def draw_map(name: str) -> dict[str, Any]:
    """A small object."""
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


def make_way(host: str, **given: Any) -> ApiLogin:
    """A login as the official client describes it."""
    usual = {"proxy": None, "verify_ssl": True, "assert_hostname": None, "tls_server_name": None}
    files = {"ssl_ca_cert": None, "cert_file": None, "key_file": None}
    return ApiLogin(SimpleNamespace(host=host, **{**usual, **files, **given}), None, "there", "default", None, "")


def test_one_connection_takes_all_requests(api: KubernetesApi, connection: Connection) -> None:
    with connection.thread_connection() as own_connection:
        assert own_connection is not None
        answers = [connection.create(MAPS, draw_map(f"m{number}"), own_connection) for number in range(20)]
        assert connection.create(MAPS, draw_map("m0"), own_connection).reason == "AlreadyExists"
    assert {answer.status for answer in answers} == {201}
    assert len(connection.request("GET", MAPS).document["items"]) == 20
    assert connection._ready()[0].server.num_connections == 1


def test_many_objects_are_made_by_connections_of_threads_and_a_few_by_the_pool(
    api: KubernetesApi, connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Connection] = []
    own_connection = Connection.thread_connection

    def note(self: Connection) -> Any:
        opened.append(self)
        return own_connection(self)

    monkeypatch.setattr(Connection, "thread_connection", note)
    calls = Calls(connection, "default")
    few = asyncio.run(calls.create_all([draw_map(f"few{number}") for number in range(4)]))
    assert not opened
    many = asyncio.run(calls.create_all([draw_map(f"many{number}") for number in range(MANY)]))
    assert opened
    assert {answer.status for answer in (*few, *many) if answer is not None} == {201}
    assert len(connection.request("GET", MAPS).document["items"]) == 4 + MANY


def test_a_refusal_of_one_says_why_and_ends_the_rest(api: KubernetesApi, connection: Connection) -> None:
    api.refuse("POST", "configmaps", 403, "exceeded quota: small", times=MANY)
    answers = asyncio.run(Calls(connection, "default").create_all([draw_map(f"m{number}") for number in range(MANY)]))
    refused = [answer for answer in answers if answer is not None and not answer.works]
    assert {answer.message for answer in refused} == {"exceeded quota: small"}
    assert len(refused) <= CREATORS
    assert answers.count(None) >= MANY - CREATORS


def test_a_login_that_expires_meanwhile_is_renewed(api: KubernetesApi, tmp_path: Path, settings: Settings) -> None:
    (tmp_path / "token").write_text("old")
    api.tokens = {"old"}
    config = json.loads(Path(settings.kubeconfig).read_text())
    config["users"][0]["user"] = {"tokenFile": str(tmp_path / "token")}
    (tmp_path / "config").write_text(json.dumps(config))
    connection = open_connection(settings.model_copy(update={"kubeconfig": str(tmp_path / "config")}))
    try:
        with connection.thread_connection() as own_connection:
            assert connection.create(MAPS, draw_map("before"), own_connection).works
            (tmp_path / "token").write_text("new")
            api.tokens = {"new"}
            assert connection.create(MAPS, draw_map("meanwhile"), own_connection).works
            assert connection.create(MAPS, draw_map("after"), own_connection).works
    finally:
        connection.close()


def test_a_connection_that_breaks_is_not_used_again(api: KubernetesApi, connection: Connection) -> None:
    with connection.thread_connection() as own_connection:
        assert own_connection is not None and connection.create(MAPS, draw_map("one"), own_connection).works
        api.lose_reply("POST", "configmaps")
        with pytest.raises(Unreachable, match="broke"):
            connection.create(MAPS, draw_map("two"), own_connection)
        assert own_connection.broken
        assert connection.create(MAPS, draw_map("three"), own_connection).works
    assert connection.request("GET", f"{MAPS}/two").works
    assert api.count("POST", "configmaps") == 3


def test_a_slow_answer(api: KubernetesApi, connection: Connection) -> None:
    held = api.hold("POST", "configmaps")
    own_connection = open_thread_connection(connection._ready()[0], 0.2)
    assert own_connection is not None
    with contextlib.closing(own_connection):
        with pytest.raises(TimedOut, match="longer than"):
            connection.create(MAPS, draw_map("one"), own_connection)
        held.free.set()
        # The late answer is read by nobody, so no later request takes it for its own.
        assert connection.create(MAPS, draw_map("two"), own_connection).status == 201


@pytest.mark.parametrize(
    ("host", "given"),
    [
        ("http://localhost", {"proxy": "http://proxy:3128"}),
        ("https://localhost", {"verify_ssl": False}),
        ("https://localhost", {"assert_hostname": "other"}),
        ("https://localhost", {"tls_server_name": "other"}),
        ("https://localhost", {"cert_file": "/nowhere/cert", "key_file": "/nowhere/key"}),
        ("unix:///run/socket", {}),
    ],
)
def test_logins_without_a_direct_connection(host: str, given: dict[str, Any]) -> None:
    assert open_thread_connection(make_way(host, **given), 1.0) is None


def test_a_server_that_does_not_listen(api: KubernetesApi) -> None:
    api.stop()
    assert open_thread_connection(make_way(api.url), 1.0) is None
