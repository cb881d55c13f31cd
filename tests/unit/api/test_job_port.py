"""The port for jobs: its certificate, its number, tokens, and what a token reaches."""

from __future__ import annotations

import ast
import io
import os
import socket
import stat
import subprocess
import sys
import zipfile
from collections.abc import Awaitable, Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx2
import pytest
from fastapi.routing import APIRoute
from starlette.types import ASGIApp
from tests.unit.controller.fakes import Bench, begin, end, play, until

from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.bridge.api.app import build_app
from overspan.bridge.api.authorization import RIGHTS, Authenticator, JobAuthenticator
from overspan.bridge.api.certificates import open_certificate
from overspan.bridge.api.client_application import build_client
from overspan.bridge.api.job_listener import TokenReader, open_job_port
from overspan.bridge.config.settings import ClusterSettings, ServerSettings, Settings
from overspan.bridge.controller.core.job_access import JobAccess

BODY: dict[str, Any] = {"kind": "script", "text": "one", "user": "me", "directory": "/tmp"}
ACCESS = JobAccess(b"secret", "certificate", {"near": "login1"}, 7000)
Ask = Callable[[int | str], httpx2.AsyncClient]
Scene = Callable[[Bench, httpx2.AsyncClient, Ask], Awaitable[None]]


async def run_job(bench: Bench, client: httpx2.AsyncClient) -> int:
    """Submit a job and let it run."""
    job_id = int((await client.post("/v1/jobs", json=BODY)).json()["id"])
    await until(lambda: f"{job_id}.0" in bench.cluster.journals)
    bench.cluster.tell(f"{job_id}.0", *begin(bench.job(job_id), bench.clock.now))
    await until(lambda: bench.state(job_id) == "RUNNING")
    return job_id


def serve(scene: Scene) -> None:
    """Run a scene with the user's own client, and one for each token."""

    async def run(bench: Bench) -> None:
        users = Authenticator()
        app: ASGIApp = build_app(bench.controller, authenticator=JobAuthenticator(users, ACCESS, bench.controller))
        clients = []

        def open_client(app: ASGIApp, headers: dict[str, str]) -> httpx2.AsyncClient:
            transport = httpx2.ASGITransport(app=app)
            clients.append(httpx2.AsyncClient(transport=transport, base_url="http://span", headers=headers))
            return clients[-1]

        def ask(job: int | str) -> httpx2.AsyncClient:
            token = ACCESS.draw_token(job) if isinstance(job, int) else job
            return open_client(TokenReader(app), {"Authorization": f"Bearer {token}"})

        await scene(bench, open_client(app, {}), ask)
        for client in clients:
            await client.aclose()

    play(run)


def test_a_token_is_of_its_job_alone() -> None:
    token = ACCESS.draw_token(42)
    assert ACCESS.find_job(token) == 42
    assert ACCESS.draw_token(42) == token != JobAccess(b"other", "certificate", {}, 0).draw_token(42)
    forged = (f"43{token[2:]}", token[:-1], f"0{token}", f"{token} ", "", ".", "42", "٤٢" + token[2:], "9" * 99 + ".0")
    assert [ACCESS.find_job(text) for text in forged] == [None] * len(forged)


def test_a_launch_carries_the_token_of_its_own_job(monkeypatch: pytest.MonkeyPatch) -> None:
    access, carried = JobAccess(b"secret", "certificate", {"local": "login1"}, 7000), dict[int, str]()

    async def scene(bench: Bench) -> None:
        take = bench.cluster._take

        def note(launch: Launch) -> Accepted | Refusal:
            carried[launch.job.id] = launch.access
            return take(launch)

        monkeypatch.setattr(bench.cluster, "_take", note)
        bench.controller.dispatcher.access = access
        numbers = [await bench.submit("one"), await bench.submit("two")]
        await until(lambda: carried.keys() == set(numbers))
        for number in numbers:
            assert f'"{access.draw_token(number)}"' in carried[number] and '"host":"login1"' in carried[number]

    play(scene)


def test_a_token_reaches_its_own_job_and_what_was_submitted_from_inside_it() -> None:
    async def scene(bench: Bench, user: httpx2.AsyncClient, ask: Ask) -> None:
        own, other = await run_job(bench, user), await run_job(bench, user)
        job = ask(own)
        assert (await job.get(f"/v1/jobs/{own}")).status_code == 200
        inner = (await job.post("/v1/jobs", json=BODY)).json()["id"]
        assert bench.job(inner).spec.origin.job == own
        for ref, status in ((own, 200), (inner, 200), (other, 403)):
            for path in (f"/v1/jobs/{ref}", f"/v1/jobs/{ref}/timeline", f"/v1/jobs/{ref}/wait?timeout=0"):
                assert (await job.get(path)).status_code == status, path
        assert (await job.post(f"/v1/jobs/{other}/hold")).status_code == 403
        rows = (await job.get("/v1/queue?lines=true")).json()["rows"]
        assert {row[0] for row in rows} == {own, inner}
        assert {row[0] for row in (await job.get("/v1/history")).json()["rows"]} == {own, inner}
        gone = (await job.post("/v1/cancel", json={"refs": [str(inner), str(other)]})).json()
        assert gone["done"] == [str(inner)] and [each["ref"] for each in gone["errors"]] == [str(other)]
        # A filter means what is within reach, and nobody is told of the rest.
        gone = (await job.post("/v1/cancel", json={"filters": {"states": ["RUNNING"]}})).json()
        assert gone["done"] == [str(own)] and bench.state(other) == "RUNNING"

    serve(scene)


def test_a_token_counts_while_its_job_lives() -> None:
    async def scene(bench: Bench, user: httpx2.AsyncClient, ask: Ask) -> None:
        own = await run_job(bench, user)
        assert (await ask(own).get("/v1/queue")).status_code == 200
        bench.cluster.tell(f"{own}.0", *end(bench.job(own), bench.clock.now))
        await until(lambda: bench.job(own).over)
        for client in (ask(own), ask(999), ask("nonsense"), ask("")):
            answer = await client.get("/v1/queue")
            assert answer.status_code == 403
        assert "is over" in (await ask(own).get("/v1/queue")).json()["error"]["remedy"]

    serve(scene)


def test_these_routes_and_no_others_are_open_to_jobs() -> None:
    async def scene(bench: Bench) -> None:
        app = build_app(bench.controller)
        routes = [route for part in app.routes for route in _list_routes(part)]
        is_job = RIGHTS[0]
        found = {route.path for route in routes if is_job in {each.call for each in route.dependant.dependencies}}
        assert found == {
            *("/v1/jobs", "/v1/plan", "/v1/schema", "/v1/cancel", "/v1/queue", "/v1/history"),
            *("/v1/ping", "/v1/client", "/v1/worker-program"),
        }

    play(scene)


def _list_routes(part: Any) -> Iterator[APIRoute]:
    router = getattr(part, "original_router", None)
    yield from (each for each in (router.routes if router else (part,)) if isinstance(each, APIRoute))


# --- certificate and port ---------------------------------------------------------------------------------------------


def test_a_certificate_is_made_once_and_is_its_owners(tmp_path: Path) -> None:
    first = open_certificate(str(tmp_path / "a"))
    assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o600
    assert "PRIVATE" not in first.text
    assert os.listdir(tmp_path / "a") == ["certificate.pem"]
    assert open_certificate(str(tmp_path / "a")) == first
    os.chmod(first.path, 0o644)
    assert open_certificate(str(tmp_path / "a")) == first
    assert stat.S_IMODE(os.stat(first.path).st_mode) == 0o600


@pytest.mark.parametrize("damage", ["gone", "empty", "cut", "link", "binary"])
def test_a_certificate_that_cannot_be_used_is_replaced(tmp_path: Path, damage: str) -> None:
    folder = tmp_path / "a"
    first = open_certificate(str(folder))
    path = Path(first.path)
    whole = path.read_text()
    path.unlink()
    if damage == "link":
        (tmp_path / "elsewhere").write_text(whole)
        path.symlink_to(tmp_path / "elsewhere")
    elif damage != "gone":
        path.write_bytes({"empty": b"", "cut": whole[:200].encode(), "binary": b"\xff\x00" * 99}[damage])
    second = open_certificate(str(folder))
    assert second.text != first.text and second.secret != first.secret
    assert not path.is_symlink()


def _settings(port: int = 0, address: str = "login1") -> Settings:
    clusters = {"far": ClusterSettings(kind="slurm", daemon_address=address)}
    return Settings(clusters=clusters, server=ServerSettings(job_port=port))


def test_the_port_is_off_until_a_cluster_needs_it(tmp_path: Path) -> None:
    assert open_job_port(_settings(address=""), str(tmp_path)) is None
    assert not list(tmp_path.iterdir())


def test_a_free_port_is_kept_and_one_that_is_taken_is_given_up(tmp_path: Path) -> None:
    first = open_job_port(_settings(), str(tmp_path))
    assert first is not None
    number = first.access.port
    with first.listener:
        second = open_job_port(_settings(), str(tmp_path))
        assert second is not None and second.access.port != number
        second.listener.close()
    third = open_job_port(_settings(), str(tmp_path))
    assert third is not None and third.access.port == second.access.port
    third.listener.close()


def test_a_configured_port_that_is_taken_costs_no_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("", 0)) as other:
        assert open_job_port(_settings(other.getsockname()[1]), str(tmp_path)) is None
    assert "commands inside jobs do not reach the daemon" in caplog.text


def test_the_address_may_have_a_port_of_its_own() -> None:
    job: Any = type("J", (), {"id": 3})
    told = JobAccess(b"s", "c", {"far": "gateway:443", "near": "login1"}, 7000)
    assert '"host":"gateway","port":443' in told.describe(job, "far")
    assert '"host":"login1","port":7000' in told.describe(job, "near")
    assert told.describe(job, "none") == ""


# --- the client application -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verb", ["top", "map"])
def test_what_the_client_application_leaves_out_says_so(verb: str, tmp_path: Path) -> None:
    path = tmp_path / "client.pyz"
    path.write_bytes(build_client().data)
    call = f"from overspan.bridge.cli.program import main; sys.exit(main([{verb!r}]))"
    words = [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(path)!r}); {call}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"span: error: `span {verb}` is not there inside jobs\n")


def test_the_client_application_has_what_its_commands_import_and_no_more() -> None:
    found = build_client()
    with zipfile.ZipFile(io.BytesIO(found.data)) as archive:
        names = {name.removesuffix(".py").replace("/", "."): name for name in archive.namelist()}
        trees = {module.removesuffix(".__init__"): ast.parse(archive.read(name)) for module, name in names.items()}
    assert list_missing(trees, "overspan.bridge.") - LEFT_OUT == set()
    used = {each for module, tree in trees.items() for each in list_imports(tree) if each != module}
    unused = {module for module in set(trees) - used if ".cli." not in module}
    assert unused == set()


LEFT_OUT = {
    f"overspan.bridge.{name}"
    for name in ("cli.jobs.top", "cli.jobs.map", "client.executor", "client.line_map", "client.line_runner")
}
"""What commands import that say inside jobs that they are not there."""


def list_imports(tree: ast.Module) -> set[str]:
    """The modules that a module may import, with packages above them and names that may be modules."""
    found = set()
    for each in ast.walk(tree):
        if isinstance(each, ast.ImportFrom) and each.module:
            found |= {each.module, *(f"{each.module}.{alias.name}" for alias in each.names)}
        elif isinstance(each, ast.Import):
            found |= {alias.name for alias in each.names}
    return found | {name.rpartition(".")[0] for name in found} | {"overspan.bridge", "overspan"}


def list_missing(trees: Mapping[str, ast.Module], prefix: str) -> set[str]:
    """The modules of this project that are imported and not there."""
    wanted = {each.module for tree in trees.values() for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    return {module for module in wanted if module and module.startswith(prefix) and module not in trees}


def test_the_client_application_is_python_39s() -> None:
    """No union by `|` is evaluated, and no argument of 3.10 is used; `make check` looks for the rest."""
    found = build_client()
    assert len(found.data) < 300_000
    with zipfile.ZipFile(io.BytesIO(found.data)) as archive:
        for name in archive.namelist():
            tree = ast.parse(archive.read(name))
            if not any(isinstance(each, ast.ImportFrom) and each.module == "__future__" for each in tree.body):
                hints = [each.annotation for each in ast.walk(tree) if isinstance(each, ast.AnnAssign)]
                unions = [each for hint in hints for each in ast.walk(hint) if isinstance(each, ast.BinOp)]
                assert not unions, f"{name}:{unions[0].lineno}"
