"""The port for jobs over real sockets: connections that hang, impostors, and who may come again after a restart."""

from __future__ import annotations

import asyncio
import json
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from overspan.bridge.api import job_listener
from overspan.bridge.api.job_listener import JobPort, JobServer, open_job_port
from overspan.bridge.client.job_connection import JobConnection, read_access
from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.runtime.job_command import NoDaemon, fetch

SETTINGS = Settings(clusters={"far": ClusterSettings(kind="slurm", daemon_address="127.0.0.1")})


async def answer(scope: Scope, receive: Receive, send: Send) -> None:
    """Any application."""
    await PlainTextResponse("here")(scope, receive, send)


def play(state: Path, story: Callable[[JobPort], Awaitable[None]]) -> None:
    """Run a story with a server whose state folder is `state`."""

    async def run() -> None:
        port = open_job_port(SETTINGS, str(state))
        assert port is not None
        server = JobServer(answer, port)
        with port.listener:
            serving = asyncio.create_task(server.serve([port.listener]))
            try:
                async with asyncio.timeout(60):
                    while not server.started:
                        await asyncio.sleep(0.01)
                    await story(port)
            finally:
                server.stop()
                await serving

    asyncio.run(run())


def write_access(port: JobPort, path: Path) -> str:
    """What a job on the cluster is given."""
    job = type("J", (), {"id": 7})
    path.write_text(port.access.describe(job, "far"))  # type: ignore[arg-type]
    return str(path)


def ask(path: str) -> None:
    """A command inside the job: connect, as it trusts the daemon."""
    JobConnection(read_access(path, {}), 5).close()


async def connect(port: JobPort) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection that has said nothing."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.load_verify_locations(cadata=port.certificate.text)
    return await asyncio.open_connection("127.0.0.1", port.access.port, ssl=context)


@pytest.mark.parametrize("said", [b"", b"GET /", b"POST / HTTP/1.1\r\nHost: span\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_request_that_does_not_end_is_given_up_and_holds_up_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: bytes
) -> None:
    monkeypatch.setattr(job_listener, "REQUEST_SECONDS", 1.0)

    async def story(port: JobPort) -> None:
        reader, writer = await connect(port)
        writer.write(said)
        other_reader, other = await connect(port)
        other.write(b"GET / HTTP/1.1\r\nHost: span\r\nConnection: close\r\n\r\n")
        assert (await other_reader.read()).endswith(b"here")
        with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError)):
            await reader.readexactly(1 << 16)
        for each in (writer, other):
            each.transport.abort()

    play(tmp_path / "state", story)


def test_a_connection_that_is_used_again_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_listener, "REQUEST_SECONDS", 0.5)

    async def story(port: JobPort) -> None:
        reader, writer = await connect(port)
        for _ in range(4):
            writer.write(b"GET / HTTP/1.1\r\nHost: span\r\n\r\n")
            assert (await reader.readuntil(b"here")).startswith(b"HTTP/1.1 200")
            await asyncio.sleep(0.3)
        writer.transport.abort()

    play(tmp_path / "state", story)


def test_another_daemon_at_the_same_place_is_told_apart(tmp_path: Path) -> None:
    async def own(port: JobPort) -> None:
        path = write_access(port, tmp_path / "access.json")
        await asyncio.to_thread(ask, path)

    async def impostor(port: JobPort) -> None:
        document = json.loads((tmp_path / "access.json").read_text())
        path = tmp_path / "elsewhere.json"
        path.write_text(json.dumps({**document, "port": port.access.port}))
        with pytest.raises(Unreachable, match="not the daemon that started this job"):
            await asyncio.to_thread(ask, str(path))
        with pytest.raises(NoDaemon, match="not the daemon that started this job"):
            await asyncio.to_thread(fetch, str(path), "")

    play(tmp_path / "state", own)
    play(tmp_path / "other", impostor)


def test_a_daemon_that_starts_anew_is_found_by_jobs_that_run(tmp_path: Path) -> None:
    async def first(port: JobPort) -> None:
        write_access(port, tmp_path / "access.json")

    async def second(port: JobPort) -> None:
        await asyncio.to_thread(ask, str(tmp_path / "access.json"))

    play(tmp_path / "state", first)
    with pytest.raises(Unreachable, match="cannot be reached from inside this job"):
        ask(str(tmp_path / "access.json"))
    play(tmp_path / "state", second)


def test_what_listens_and_does_not_speak_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(port: JobPort) -> None:
        write_access(port, tmp_path / "access.json")

    play(tmp_path / "state", story)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        document = json.loads((tmp_path / "access.json").read_text())
        (tmp_path / "access.json").write_text(json.dumps({**document, "port": silent.getsockname()[1]}))
        with pytest.raises(Unreachable, match="does not speak"):
            JobConnection(read_access(str(tmp_path / "access.json"), {}), 0.3)
        monkeypatch.setattr("overspan.bridge.runtime.job_command.SECONDS", 0.3)
        with pytest.raises(NoDaemon, match="cannot be reached from inside this job"):
            fetch(str(tmp_path / "access.json"), "")
