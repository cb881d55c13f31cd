"""Whatever fits the OpenAPI description, or does not, is answered as described and never with a 500."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.core.result import Ok
from tests.unit.controller.fakes import Bench

from overspan.bridge.api.app import build_app
from overspan.bridge.api.server import UnixServer
from overspan.bridge.controller.submission.parsing import read

PATIENCE = 120.0
"""Seconds for an answer; the machine may have other things to do meanwhile."""


class Service:
    """A controller with fakes and the real readers, served on a loopback port by a thread of its own."""

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
        bench = Bench()
        bench.state_dir = str(self.folder)
        bench.reader = read
        controller = await bench.start()
        self.app = build_app(controller)
        self.server = UnixServer(self.app)
        self.ready.set()
        await self.server.serve([self.listener])
        await controller.close()

    def close(self) -> None:
        self.loop.call_soon_threadsafe(self.server.stop)
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    service = Service(tmp_path_factory.mktemp("service"))
    yield service
    service.close()


# Streams and long polls answer late by design.
SLOW = ("/v1/events", "/v1/jobs/{ref}/wait", "/v1/jobs/{ref}/allocation")


def test_every_answer_is_as_described(service: Service) -> None:
    schema = schemathesis.openapi.from_dict(service.app.openapi())
    operations = [found.ok() for found in schema.get_all_operations() if isinstance(found, Ok)]
    assert len(operations) == 75
    for operation in operations:
        if operation.path not in SLOW:
            _try(service, operation)


def _try(service: Service, operation: Any) -> None:
    @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None)
    @given(case=operation.as_strategy())
    def check(case: Any) -> None:
        answer = case.call(base_url=service.url, timeout=PATIENCE)
        assert answer.status_code < 500, answer.text
        if answer.status_code != 200:
            assert answer.json()["error"]["message"]

    check()
