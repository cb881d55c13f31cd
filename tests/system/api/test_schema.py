"""The daemon's API over its real parts: whatever is sent, the answer fits the description. Row CS05."""

from __future__ import annotations

import asyncio
import http.client
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import positive_data_acceptance
from tests.examples import count_examples

from overspan.bridge.api.app import build_app
from overspan.bridge.api.server import UnixServer
from overspan.bridge.config.settings import load_settings
from overspan.bridge.controller.controller import Controller, ControllerParts
from overspan.bridge.controller.core.timers import LoopTimers
from overspan.bridge.controller.submission.parsing import read
from overspan.bridge.store.store import Store

PATIENCE = 120
"""Seconds that a single answer may take on a busy machine."""
SLOW = ("/v1/events", "/v1/jobs/{ref}/allocation")
"""Streams that end when their reader goes away, or a job that is held here."""
HELD = {"kind": "job_file", "text": "name: held\nrun: 'true'\n", "hold": True, "directory": "/tmp"}
GROUP = {**HELD, "text": "name: g\n---\nname: a\nrun: 'true'\n---\nname: b\nrun: 'true'\n"}


class Service:
    """A controller with the real store, readers and local adapter, served on a loopback port by a thread."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.ready = threading.Event()
        self.thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self.thread.start()
        assert self.ready.wait(PATIENCE)

    async def _run(self) -> None:
        self.loop = asyncio.get_running_loop()
        config = self.folder / "config.yaml"
        config.write_text("clusters:\n  local: {kind: local, cpus: 4, memory: 8G}\n")
        store = Store.open(self.folder / "overspan.db")
        settings = load_settings(str(config), str(self.folder / "none.yaml"))
        parts = ControllerParts(store, settings, str(self.folder), LoopTimers(time.time), time.time, read)
        self.controller = await Controller.open(parts)
        self.app = build_app(self.controller)
        self.server = UnixServer(self.app)
        self.ready.set()
        await self.server.serve([self.listener])
        await self.controller.close()
        await asyncio.to_thread(store.close)

    def close(self) -> None:
        """Cancel what is held and stop."""
        self.loop.call_soon_threadsafe(self.controller.end_waits)
        self.loop.call_soon_threadsafe(self.server.stop)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("daemon"))
    yield service
    service.close()


def held(case: Any) -> Any:
    """The case as it may be sent: nothing that it submits is to run here, and nothing waits for long."""
    if isinstance(case.body, dict) and case.operation.path == "/v1/jobs":
        case.body["hold"] = True
        if case.body.get("kind") == "script":
            case.body["argv"] = ["--hold", *(case.body.get("argv") or [])]
    if case.operation.path.endswith("/wait"):
        case.query = {**(case.query or {}), "timeout": "0"}
    return case


def aimed(operation: Any, refs: list[str]) -> Any:
    """Cases of an operation; half of those with a job's id name one that is there."""
    cases = operation.as_strategy()
    if "{ref}" not in operation.path:
        return cases

    def aim(pair: tuple[Any, str | None]) -> Any:
        case, ref = pair
        if ref is not None:
            case.path_parameters = {**(case.path_parameters or {}), "ref": ref}
        return case

    return st.tuples(cases, st.none() | st.sampled_from(refs)).map(aim)


def test_every_answer_fits_the_description(service: Service, caplog: pytest.LogCaptureFixture) -> None:
    schema = schemathesis.openapi.from_dict(service.app.openapi())
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    submit = next(operation for operation in operations if operation.path == "/v1/jobs")
    refs = [str(_send(service, submit, body)["id"]) for body in (HELD, GROUP)]
    refs += [f"{refs[1]}+1", f"{refs[1]}.b", f"{refs[0]}_1", "local:1.0", "0", "99999"]
    with caplog.at_level(logging.ERROR):
        for operation in operations:
            if operation.path not in SLOW:
                _try(service, operation, refs)
    assert [record.getMessage() for record in caplog.records if record.exc_info] == []


def _send(service: Service, operation: Any, body: dict[str, Any]) -> dict[str, Any]:
    case = operation.Case(body=body, media_type="application/json")
    answer = case.call(base_url=service.url, timeout=PATIENCE)
    assert answer.status_code == 200, answer.text
    document: dict[str, Any] = answer.json()
    return document


def _try(service: Service, operation: Any, refs: list[str]) -> None:
    every = list(HealthCheck)

    @settings(
        max_examples=count_examples(12), deadline=None, suppress_health_check=every, derandomize=True, database=None
    )
    @given(case=aimed(operation, refs))
    def check(case: Any) -> None:
        answer = held(case).call(base_url=service.url, timeout=PATIENCE)
        told = f"{case.method} {case.formatted_path} {str(case.body)[:500]}\n{answer.content[:500]!r}"
        assert answer.status_code < 500, told
        # What a text means is no matter of its schema: a well-formed request may be refused.
        case.validate_response(answer, excluded_checks=[positive_data_acceptance])
        if answer.status_code != 200:
            assert answer.json()["error"]["message"], told

    check()


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[1,2]", 400),
        (b"{", 400),
        (b'{"kind": "job_file"', 400),
        (b"\xff\xfe", 400),
        (b'{"kind": "job_file", "text": "\\ud800"}', 400),
        (b'{"kind": "script", "text": "#!/bin/sh\\n\\u0000"}', 400),
        (b'{"kind": "nosuch", "text": ""}', 400),
        (b'{"format": 2, "kind": "job_file", "text": ""}', 400),
        (b'{"a":' * 50_000, 400),
    ],
    ids=["none", "null", "list", "open", "cut", "bytes", "surrogate", "nul", "kind", "format", "deep"],
)
@pytest.mark.parametrize("path", ["/v1/jobs", "/v1/plan", "/v1/cancel"])
def test_bodies_that_are_none(service: Service, path: str, body: bytes, status: int) -> None:
    host = service.url.removeprefix("http://")
    connection = http.client.HTTPConnection(host, timeout=PATIENCE)
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    finally:
        connection.close()
    assert answer.status == status, text[:500]
    assert json.loads(text)["error"]["message"]
