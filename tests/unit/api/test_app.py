"""The HTTP API over a controller with fakes: shapes, bounds, and every failure in one form."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import httpx2
import pytest
from tests.unit.controller.fakes import Bench, begin, end, play, turn, until

from overspan.bridge.api.app import build_app
from overspan.bridge.api.bodies import MAX_BODY, SubmissionBody
from overspan.bridge.controller.views import history
from overspan.bridge.model.errors import Place, StoreFailed
from overspan.bridge.readers.sbatch.errors import SbatchUsage
from overspan.bridge.store.records import HistoryRows

Scene = Callable[[Bench, httpx2.AsyncClient], Awaitable[None]]

BODY: dict[str, Any] = {"kind": "script", "text": "one", "user": "me", "directory": "/tmp"}


def serve(scene: Scene) -> None:
    """Run a scene with a client of an app of its own."""

    async def run(bench: Bench) -> None:
        transport = httpx2.ASGITransport(app=build_app(bench.controller))
        async with httpx2.AsyncClient(transport=transport, base_url="http://span") as client:
            await scene(bench, client)

    play(run)


async def run_job(bench: Bench, client: httpx2.AsyncClient, text: str = "one") -> int:
    """Submit a job and let it run."""
    job_id = int((await client.post("/v1/jobs", json={**BODY, "text": text})).json()["id"])
    await until(lambda: f"{job_id}.0" in bench.cluster.journals)
    bench.cluster.tell(f"{job_id}.0", *begin(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    return job_id


def test_a_job_through_the_api() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        answer = (
            await client.post("/v1/jobs", json={**BODY, "format": 1, "file": None, "name": "g", "text": "a b"})
        ).json()
        assert answer["format"] == 1 and answer["id"] == 1 and answer["task_ids"] == ["1+0", "1+1"]
        assert (answer["name"], answer["cluster"], answer["options"]) == ("g", "local", {"wait": False})
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        listing = (await client.get("/v1/queue", params={"tasks": "1", "states": "RUNNING,CD"})).json()
        rows = [dict(zip(listing["columns"], row, strict=True)) for row in listing["rows"]]
        assert [(row["raw_id"], row["name"], row["group"], row["state"]) for row in rows] == [
            (1, "a", "g", "RUNNING"),
            (2, "b", "g", "RUNNING"),
        ]
        assert rows[0]["node_list"] == "me" and rows[0]["work_dir"] == "/tmp" and rows[0]["time_limit"] == 60
        job = (await client.get("/v1/jobs/1")).json()["job"]
        assert [task["attempts"][0]["nodes"][0]["address"] for task in job["tasks"]] == ["127.1.0.1"] * 2
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        waited = (await client.get("/v1/jobs/1/wait", params={"timeout": 20})).json()
        assert (waited["over"], waited["state"]) == (True, "COMPLETED")
        lines = (await client.get("/v1/jobs/1/timeline")).json()["rows"]
        assert lines[0]["end"] == "PENDING" and lines[-1]["end"] == "COMPLETED"
        assert (await client.get("/v1/history")).json()["rows"][0][0] == 1

    serve(scene)


def test_the_changes_of_the_queue_behind_a_version() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        path = "/v1/queue/changes"
        first = (await client.get(path)).json()
        assert first["whole"] and first["rows"] == []
        asked = asyncio.ensure_future(client.get(path, params={"version": first["version"], "wait": 60}))
        await turn()
        assert not asked.done()
        await run_job(bench, client, "a b")
        told = (await asked).json()
        assert not told["whole"] and told["changed"] == [1] and len(told["rows"]) == 2
        assert (await client.get(path, params={"wait": 601})).status_code == 400
        assert (await client.get(path, params={"version": "v" * 65})).status_code == 400

    serve(scene)


def test_the_queue_as_lines_unless_only_the_command_can_write_them(monkeypatch: pytest.MonkeyPatch) -> None:
    # `squeue -r` sets it for its process.
    monkeypatch.delenv("SLURM_BITSTR_LEN", raising=False)

    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        told = (await client.get("/v1/queue", params={"lines": 1})).json()
        assert told["lines"] == [] and "JOBID" in told["header"] and "rows" not in told
        monkeypatch.setenv("SLURM_BITSTR_LEN", "5")
        told = (await client.get("/v1/queue", params={"lines": 1})).json()
        assert told["rows"] == [] and "lines" not in told

    serve(scene)


@pytest.mark.parametrize("fails_at", [1, 3])
def test_a_history_that_fails_says_so_also_in_the_middle(monkeypatch: pytest.MonkeyPatch, fails_at: int) -> None:
    monkeypatch.setattr(history, "PAGE", 1)

    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        for _ in range(3):
            await client.post("/v1/jobs", json=BODY)
        asked: list[int] = []
        read = bench.repository.history_rows

        async def history_rows(ids: Sequence[int]) -> list[HistoryRows]:
            asked.append(1)
            if len(asked) == fails_at:
                raise StoreFailed("the disk fails", remedy="mend it")
            return await read(ids)

        monkeypatch.setattr(bench.repository, "history_rows", history_rows)
        answer = await client.get("/v1/history")
        error = answer.json()["error"]
        assert (error["message"], error["remedy"]) == ("the disk fails", "mend it")
        assert answer.status_code == (507 if fails_at == 1 else 200)

    serve(scene)


def test_secrets_are_in_no_answer() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        await client.post("/v1/jobs", json={**BODY, "secrets": {"KEY": "hunter2"}, "environment": {"PASS": "hunter2"}})
        for path in ("/v1/queue", "/v1/history", "/v1/jobs/1", "/v1/jobs/1/timeline"):
            assert "hunter2" not in (await client.get(path)).text

    serve(scene)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"kind": "novel"}, "body.kind"),
        ({"texd": ""}, "unknown key 'body.texd'"),
        ({"directory": "here"}, "body.directory"),
        ({"environment": {"A=B": "c"}}, "no name of a variable"),
        ({"environment": {"A": "b\0"}}, "NUL"),
        ({"argv": "words"}, "body.argv"),
        ({"umask": 8192}, "body.umask"),
        ({"uid": -1}, "body.uid"),
        ({"format": 2}, "body.format"),
        ({"text": "one later"}, "cannot carry out event_callback"),
    ],
)
def test_wrong_bodies(change: dict[str, Any], words: str) -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", json={**BODY, **change})
        assert answer.status_code == 400
        error = answer.json()["error"]
        assert error["code"] == "invalid" and words in error["message"] and error["remedy"]
        assert bench.repository.transactions == 0

    serve(scene)


def test_all_mistakes_of_a_body_are_told_with_the_nearest_key_and_no_secret() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        wrong = {"texd": "", "uid": -1, "umask": "8", "kind": "novel", "secrets": {"KEY": 4711}}
        error = (await client.post("/v1/jobs", json={**BODY, **wrong})).json()["error"]
        *mistakes, unknown = error["message"].splitlines()
        assert sorted(mistakes) == [
            "body.kind: the text 'novel' is not 'job_file' or 'script'",
            "body.secrets.KEY: text is wanted here, not a value that is not shown",
            "body.uid: -1 is out of range; it must be at least 0",
            "body.umask: a whole number is wanted here, not the text '8'",
        ]
        assert unknown.startswith("unknown key 'body.texd' (did you mean 'text'? known keys:")

    serve(scene)


@pytest.mark.parametrize(
    "body", [b"", b"{", b"[]", b"null", b"\xff", b'{"kind": NaN}', b"[" * 100_000, b'{"text": "\\ud800"}']
)
def test_bodies_that_are_no_objects(body: bytes) -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        answer = await client.post("/v1/jobs", content=body, headers={"content-type": "application/json"})
        assert answer.status_code == 400 and answer.json()["error"]["code"] == "invalid"

    serve(scene)


def test_a_body_has_a_limit_whether_announced_or_not() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        async def parts() -> Any:
            for _ in range(9):
                yield b" " * (1 << 20)

        for content in (b" " * (MAX_BODY + 1), parts()):
            answer = await client.post("/v1/jobs", content=content)
            assert answer.status_code == 413 and "8 MiB" in answer.json()["error"]["message"]

    serve(scene)


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("DELETE", "/v1/queue", 405, "invalid"),
        ("GET", "/v1/jobs/9", 404, "not_found"),
        ("GET", "/v1/jobs/x", 400, "invalid"),
        ("GET", "/v1/jobs/9/logs?limit=0", 400, "invalid"),
        ("GET", "/v1/jobs/9/logs/search", 400, "invalid"),
        ("GET", "/v1/jobs/9/logs/search?pattern=x&limit=0", 400, "invalid"),
        ("GET", "/v1/jobs/9/wait?timeout=nan", 400, "invalid"),
        ("GET", "/v1/queue?states=SLEEPING", 400, "invalid"),
        ("GET", "/v1/history?since=inf", 400, "invalid"),
        ("GET", "/v1/events?since=-1", 400, "invalid"),
        ("GET", "/v1/nodes?clusters=moon", 404, "not_found"),
        ("POST", "/v1/clusters/moon/check", 404, "not_found"),
        ("POST", "/v1/clusters/local/check", 400, "invalid"),
        ("POST", "/v1/jobs/9/hold", 404, "not_found"),
        ("POST", "/v1/cancel", 400, "invalid"),
    ],
)
def test_failures_have_one_form(method: str, path: str, status: int, code: str) -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        answer = await client.request(method, path)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
        assert answer.json()["format"] == 1

    serve(scene)


def test_an_unforeseen_failure_has_an_id_and_no_traceback(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        def fail(*arguments: object) -> None:
            raise RuntimeError("secret inner words")

        bench.controller.submitter.reader = fail  # type: ignore[assignment]
        answer = await client.post("/v1/jobs", json=BODY)
        assert answer.status_code == 500 and "secret" not in answer.text
        number = answer.json()["error"]["message"].split()[-1].rstrip(")")
        assert number in caplog.text and "secret inner words" in caplog.text

    serve(scene)


def test_sbatch_errors_keep_their_exit_code_and_lose_their_prefix() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        def fail(*arguments: object) -> None:
            raise SbatchUsage("sbatch: error: one\nsbatch: error: two", place=Place("a.sh", 3, 9))

        bench.controller.submitter.reader = fail  # type: ignore[assignment]
        error = (await client.post("/v1/jobs", json=BODY)).json()["error"]
        assert error == {
            "code": "invalid",
            "message": "one\ntwo",
            "exit_code": 255,
            "place": {"file": "a.sh", "line": 3, "column": 9},
        }

    serve(scene)


def test_a_full_disk_is_said() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        bench.repository.broken = True
        answer = await client.post("/v1/jobs", json=BODY)
        assert answer.status_code == 507 and answer.json()["error"]["message"] == "the disk is full"

    serve(scene)


def test_orders_and_cancel() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        await client.post("/v1/jobs", json={**BODY, "text": "one hold"})
        assert (await client.post("/v1/jobs/1/hold")).status_code == 200
        assert (await client.post("/v1/jobs/1/requeue", json={"hold": True})).status_code == 409
        update = {"time_limit": 0, "cpus": 5, "comment": "x"}
        assert (await client.post("/v1/jobs/1/update", json=update)).json() == {"format": 1}
        assert (await client.post("/v1/jobs/1/update", json={"gres": ":"})).status_code == 400
        assert (await client.post("/v1/jobs/1/update", json={"cpus": 0})).status_code == 400
        job = (await client.get("/v1/jobs/1")).json()["job"]
        assert (job["tasks"][0]["cpus"], job["comment"], job["tasks"][0]["time_limit"]) == (5, "x", None)
        answer = (await client.post("/v1/cancel", json={"refs": ["1", "7"]})).json()
        assert answer["done"] == ["1"]
        assert [(row["ref"], row["error"]["code"]) for row in answer["errors"]] == [("7", "not_found")]
        answer = (await client.post("/v1/cancel", json={"refs": ["1"]})).json()
        assert answer["errors"][0]["error"]["code"] == "conflict"
        refused = await client.post("/v1/cancel", json={"refs": ["1"], "signal": "NOPE"})
        assert refused.status_code == 400

    serve(scene)


def test_logs_have_their_facts_in_headers() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        await run_job(bench, client)
        answer = await client.get("/v1/jobs/1/logs", params={"offset": 6})
        assert answer.content == b"world\n" and answer.headers["content-type"] == "application/octet-stream"
        assert [answer.headers[f"x-span-{name}"] for name in ("offset", "size", "path", "over")] == [
            "6",
            "12",
            "/run/out",
            "0",
        ]
        assert (await client.get("/v1/jobs/1/streams")).json()["streams"][0]["stream"] == "output"

    serve(scene)


def test_logs_are_searched() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        await run_job(bench, client)
        answer = (await client.get("/v1/jobs/1/logs/search", params={"pattern": "WOR|wor"})).json()
        assert (answer["lines"], answer["begin"], answer["size"]) == ([[6, 12, "world"]], 0, 12)
        answer = (await client.get("/v1/jobs/1/logs/search", params={"pattern": "wor", "end": 6})).json()
        assert (answer["lines"], answer["begin"], answer["end"]) == ([], 0, 6)

    serve(scene)


def test_events_resume_where_they_stopped() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        await run_job(bench, client)
        lines = [json.loads(line) for line in (await client.get("/v1/events", params={"since": 0})).text.splitlines()]
        assert [line["seq"] for line in lines] == list(range(1, len(lines) + 1)) and lines[0]["job_id"] == 1
        rest = (await client.get("/v1/events", params={"since": len(lines) - 1})).text.splitlines()
        assert len(rest) == 1
        assert (await client.get("/v1/events")).text == ""

    serve(scene)


def test_a_stream_ends_when_its_client_leaves() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        app = build_app(bench.controller)
        left = asyncio.Event()
        sent: list[dict[str, Any]] = []
        first = True

        async def receive() -> dict[str, Any]:
            nonlocal first
            if first:
                first = False
                return {"type": "http.request", "body": b""}
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            sent.append(message)

        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "path": "/v1/events",
            "raw_path": b"/v1/events",
            "query_string": b"follow=1",
            "headers": [],
        }
        request = asyncio.ensure_future(app(scope, receive, send))
        await until(lambda: bool(sent))
        await bench.submit()
        await until(lambda: any(b'"PENDING"' in message.get("body", b"") for message in sent))
        assert not request.done()
        left.set()
        await asyncio.wait_for(request, 60)

    serve(scene)


def test_ping_clusters_nodes_plan_and_schema() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        ping = (await client.get("/v1/ping")).json()
        assert ping["formats"] == [1] and ping["clusters"] == 1 and ping["problems"] == []
        clusters = (await client.get("/v1/clusters")).json()["clusters"]
        assert (clusters[0]["name"], clusters[0]["default"], clusters[0]["state"]) == ("local", True, "up")
        nodes = (await client.get("/v1/nodes")).json()
        assert nodes["nodes"][0]["cluster"] == "local" and nodes["clusters"] == [{"name": "local", "message": ""}]
        bench.cluster.fail(True)
        assert (await client.get("/v1/nodes")).json()["clusters"][0]["message"] == "no route to the cluster"
        plan = (await client.post("/v1/plan", json={**BODY, "text": "x"})).json()
        assert plan["text"] == "processes of x" and bench.repository.jobs == {}
        assert "$defs" in (await client.get("/v1/schema")).json()["schema"]
        assert (await client.post("/v1/jobs", json={**BODY, "test_only": True})).json()["id"] == 0
        assert bench.repository.jobs == {}

    serve(scene)


def test_openapi_names_every_route_and_its_failures() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        paths = (await client.get("/v1/openapi.json")).json()["paths"]
        assert len(paths) == 73
        for operations in paths.values():
            for operation in operations.values():
                assert set(operation["responses"]) == {"200", "default"}

    serve(scene)


def test_shutdown_answers_before_it_stops() -> None:
    async def scene(bench: Bench) -> None:
        stopped: list[bool] = []
        app = build_app(bench.controller, lambda: stopped.append(True))
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=app), base_url="http://span") as client:
            assert (await client.post("/v1/shutdown", json={})).json() == {"format": 1}
        assert stopped == [True]

    play(scene)


def test_waits_end_with_the_daemon() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        await bench.submit("one hold")
        waiting = asyncio.ensure_future(client.get("/v1/jobs/1/wait", params={"timeout": 500}))
        await turn()
        bench.controller.end_waits()
        assert (await waiting).json()["over"] is False

    serve(scene)


def test_two_submissions_of_one_shell_keep_its_environment_once() -> None:
    text = json.dumps({"kind": "script", "text": "", "environment": {"LONG_NAME": "a value of some length"}})
    one, other = (SubmissionBody.model_validate(json.loads(text)).environment for _ in range(2))
    assert [*map(id, one)] == [*map(id, other)]
    assert [*map(id, one.values())] == [*map(id, other.values())]
