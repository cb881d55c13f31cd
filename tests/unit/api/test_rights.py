"""A daemon of several users: who may do what, told by what the kernel says of the connection alone."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute
from starlette.types import ASGIApp, Receive, Scope, Send
from tests.unit.controller.fakes import Bench, begin, end, play, turn, until

from overspan.adapters.identities import AccountDatabase
from overspan.bridge.api.app import build_app
from overspan.bridge.api.authorization import PEER, RIGHTS, PeerAuthenticator
from overspan.bridge.api.server import UnixServer, bind_socket, read_peer
from overspan.bridge.model.errors import Denied

UIDS = {"root": 0, "ada": 1101, "bob": 1102, "olga": 1103}
NAMES = {uid: name for name, uid in UIDS.items()}
BODY: dict[str, Any] = {"kind": "script", "text": "one", "user": "bob", "uid": 1102, "directory": "/tmp"}
Clients = dict[str, httpx2.AsyncClient]
Scene = Callable[[Bench, Clients], Awaitable[None]]


def name_of(uid: int) -> str:
    if uid not in NAMES:
        raise Denied(f"the user {uid} has no account on this machine")
    return NAMES[uid]


class As:
    """The app as a user's connection reaches it."""

    def __init__(self, app: ASGIApp, uid: int | None) -> None:
        self.app = app
        self.uid = uid

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.app({**scope, "state": {PEER: self.uid}}, receive, send)


def serve(scene: Scene) -> None:
    """Run a scene with a client for each user of a shared daemon."""

    async def run(bench: Bench) -> None:
        app = build_app(bench.controller, authenticator=PeerAuthenticator(["olga"], AccountDatabase(name=name_of)))
        uids: dict[str, int | None] = {**UIDS, "stranger": 4242, "unseen": None}
        clients = {
            name: httpx2.AsyncClient(transport=httpx2.ASGITransport(app=As(app, uid)), base_url="http://span")
            for name, uid in uids.items()
        }
        await scene(bench, clients)
        for client in clients.values():
            await client.aclose()

    play(run)


async def run_job(bench: Bench, clients: Clients, user: str = "ada") -> int:
    """Let a job of a user's run, whatever the body says of its owner."""
    job_id = int((await clients[user].post("/v1/jobs", json=BODY)).json()["id"])
    await until(lambda: f"{job_id}.0" in bench.cluster.journals)
    bench.cluster.tell(f"{job_id}.0", *begin(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    return job_id


def rows_of(answer: httpx2.Response) -> list[tuple[int, str]]:
    """Number and user of each row of a listing."""
    listing = answer.json()
    places = [listing["columns"].index(name) for name in ("id", "user")]
    return [(row[places[0]], row[places[1]]) for row in listing["rows"]]


OWNERS = ("ada", "olga", "root")
READERS = ("ada", "root")
EVERYBODY = ("ada", "bob", "olga", "root")
TABLE = [
    ("GET", "/v1/jobs/1", None, EVERYBODY),
    ("GET", "/v1/jobs/1/wait?timeout=0", None, EVERYBODY),
    ("GET", "/v1/jobs/1/script", None, OWNERS),
    ("GET", "/v1/jobs/1/sent", None, READERS),
    ("GET", "/v1/jobs/1/variables", None, READERS),
    ("GET", "/v1/jobs/1/timeline", None, OWNERS),
    ("GET", "/v1/jobs/1/streams", None, READERS),
    ("GET", "/v1/jobs/1/logs", None, READERS),
    ("GET", "/v1/jobs/1/logs/search?pattern=x", None, READERS),
    ("POST", "/v1/jobs/1/hold", {}, OWNERS),
    ("POST", "/v1/jobs/1/release", {}, OWNERS),
    ("POST", "/v1/jobs/1/requeue", {}, OWNERS),
    ("POST", "/v1/jobs/1/resubmit", {"changes": {"time": "2h"}}, OWNERS),
    ("GET", "/v1/jobs/1/resubmit", None, OWNERS),
    ("POST", "/v1/jobs/1/suspend", {}, OWNERS),
    ("POST", "/v1/jobs/1/resume", {}, OWNERS),
    ("POST", "/v1/jobs/1/top", {}, OWNERS),
    ("POST", "/v1/jobs/1/restart", {}, OWNERS),
    ("POST", "/v1/jobs/1/update", {"comment": "x"}, OWNERS),
    ("POST", "/v1/jobs/1/shell", {}, READERS),
    ("POST", "/v1/jobs/1/step", {"words": ["true"]}, READERS),
    ("GET", "/v1/watches", None, EVERYBODY),
    ("GET", "/v1/ping", None, EVERYBODY),
    ("GET", "/v1/clusters", None, EVERYBODY),
    ("GET", "/v1/nodes", None, EVERYBODY),
    ("GET", "/v1/schema", None, EVERYBODY),
    ("POST", "/v1/shutdown", {}, ("olga", "root")),
]


@pytest.mark.parametrize(("method", "path", "body", "allowed"), TABLE, ids=lambda value: str(value)[:40])
def test_who_may_do_what(method: str, path: str, body: dict[str, Any] | None, allowed: tuple[str, ...]) -> None:
    async def scene(bench: Bench, clients: Clients) -> None:
        assert await run_job(bench, clients) == 1
        for user, client in clients.items():
            answer = await client.request(method, path, json=body)
            assert (answer.status_code != 403) == (user in allowed), (user, answer.text)
            if user in ("bob", "olga") and user not in allowed:
                assert answer.json()["error"]["message"] == "Access/permission denied"

    serve(scene)


def test_every_route_asks_who_it_is() -> None:
    async def scene(bench: Bench) -> None:
        app = build_app(bench.controller)
        routes = [route for route in app.routes if isinstance(route, APIRoute)]
        routes += [
            route
            for part in app.routes
            if (router := getattr(part, "original_router", None)) is not None
            for route in router.routes
            if isinstance(route, APIRoute)
        ]
        assert len(routes) > 30
        for route in routes:
            asked = {dependency.call for dependency in route.dependant.dependencies}
            assert asked & set(RIGHTS), f"{route.path} does not say for whom it is"
            if "{ref}" in route.path:
                assert asked & set(RIGHTS[2:]), f"{route.path} is for everybody, whoever owns the job"

    play(scene)


def test_a_job_belongs_to_whom_the_kernel_names() -> None:
    async def scene(bench: Bench, clients: Clients) -> None:
        await run_job(bench, clients)
        entry = bench.controller.recorder.registry.get(1)
        assert entry is not None and (entry.user, entry.job.spec.origin.user) == ("ada", "ada")
        for nobody, why in (("stranger", "4242"), ("unseen", "Access/permission denied")):
            answer = await clients[nobody].post("/v1/jobs", json=BODY)
            assert answer.status_code == 403 and why in answer.json()["error"]["message"]
        assert len(bench.repository.jobs) == 1

    serve(scene)


def test_the_queue_is_everybodys_and_the_history_ones_own() -> None:
    async def scene(bench: Bench, clients: Clients) -> None:
        await run_job(bench, clients, "ada")
        await run_job(bench, clients, "bob")
        every = [(1, "ada"), (2, "bob")]
        for client in (clients["ada"], clients["olga"]):
            assert rows_of(await client.get("/v1/queue")) == every
            assert rows_of(await client.get("/v1/queue", params={"users": "bob"})) == every[1:]
        assert rows_of(await clients["ada"].get("/v1/history")) == every[:1]
        assert rows_of(await clients["ada"].get("/v1/history", params={"users": "bob"})) == []
        assert rows_of(await clients["ada"].get("/v1/history", params={"users": "ada,bob"})) == every[:1]
        assert rows_of(await clients["ada"].get("/v1/history", params={"ids": "2"})) == []
        assert rows_of(await clients["olga"].get("/v1/history")) == every
        lines = (await clients["bob"].get("/v1/events", params={"since": 0})).text.splitlines()
        assert {json.loads(line)["job_id"] for line in lines} == {2}
        lines = (await clients["root"].get("/v1/events", params={"since": 0})).text.splitlines()
        assert {json.loads(line)["job_id"] for line in lines} == {1, 2}

    serve(scene)


def test_what_is_over_and_forgotten_is_its_owners() -> None:
    async def scene(bench: Bench, clients: Clients) -> None:
        await run_job(bench, clients)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        assert (await clients["bob"].get("/v1/jobs/1")).status_code == 200
        bench.controller.recorder.registry.remove(1)
        assert (await clients["bob"].get("/v1/jobs/1")).status_code == 403
        assert (await clients["bob"].get("/v1/jobs/1/wait?timeout=0")).status_code == 403
        assert (await clients["ada"].get("/v1/jobs/1")).status_code == 200
        # Its events too.
        assert not (await clients["bob"].get("/v1/events", params={"since": 0})).text.strip()
        assert (await clients["ada"].get("/v1/events", params={"since": 0})).text.strip()

    serve(scene)


def test_a_cancel_ends_ones_own_jobs_alone() -> None:
    async def scene(bench: Bench, clients: Clients) -> None:
        for user in ("ada", "bob", "ada"):
            await run_job(bench, clients, user)

        async def cancel(user: str, **body: Any) -> tuple[list[str], list[str]]:
            answer = (await clients[user].post("/v1/cancel", json=body)).json()
            return answer["done"], [f"{each['ref']}: {each['error']['message']}" for each in answer["errors"]]

        denied = "Access/permission denied"
        assert await cancel("bob", refs=["1", "2"]) == (["2"], [f"1: {denied}"])
        assert await cancel("bob", refs=["1"], signal="USR1") == ([], [f"1: {denied}"])
        assert await cancel("bob", filters={"users": ["ada"]}) == ([], [f"1: {denied}", f"3: {denied}"])
        # Who names nobody means the own jobs.
        assert (await cancel("bob", filters={"states": ["RUNNING"]}))[1] == []
        assert {order.handle for order in bench.cluster.orders} <= {"2.0"}
        assert await cancel("olga", refs=["1"]) == (["1"], [])
        assert await cancel("ada", filters={"states": ["RUNNING"], "users": ["ada"]}) == (["1", "3"], [])

    serve(scene)


def test_a_job_joins_no_group_of_another_user() -> None:
    async def scene(bench: Bench, clients: Clients) -> None:
        group = {**BODY, "text": "a b", "name": "g"}
        assert (await clients["ada"].post("/v1/jobs", json=group)).json()["id"] == 1
        joined = await clients["bob"].post("/v1/jobs", json={**BODY, "text": "one parent=1"})
        assert joined.status_code == 403 and "Access/permission denied" in joined.text
        assert (await clients["ada"].post("/v1/jobs", json={**BODY, "text": "one parent=1"})).status_code == 200
        await turn()

    serve(scene)


def test_the_kernel_tells_who_is_at_the_other_end(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    seen: list[object] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope["state"].get(PEER))
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    def ask() -> None:
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)
            # A second request of the same connection is from the same user.
            for _ in range(2):
                client.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nX-Peer-Uid: 0\r\n\r\n")
                assert client.recv(1000).startswith(b"HTTP/1.1 200")

    async def run() -> None:
        server = UnixServer(app)
        # However slow the client is, its connection stays.
        server.config.timeout_keep_alive = 600
        serving = asyncio.ensure_future(server.serve([bind_socket(path, 0o666)]))
        thread = threading.Thread(target=ask)
        thread.start()
        await asyncio.to_thread(thread.join)
        server.stop()
        await serving

    asyncio.run(run())
    assert seen == [os.getuid()] * 2
    assert (os.stat(path).st_mode & 0o777) == 0o666


def test_who_is_not_on_a_unix_socket_is_nobody() -> None:
    with socket.socket(socket.AF_INET) as other:
        assert read_peer(other) is None
    assert read_peer(None) is None
