"""Credentials in Secrets follow their source, and pods whose programs have ended are told."""

from __future__ import annotations

import asyncio
import base64
import json
from types import SimpleNamespace
from typing import Any, cast

import pytest

from overspan.adapters.kubernetes.api.answers import ApiAnswer
from overspan.adapters.kubernetes.api.executing import ExecCommand
from overspan.adapters.kubernetes.launches import secret_renewals
from overspan.adapters.kubernetes.launches.launches import Launches
from overspan.adapters.kubernetes.launches.secret_renewals import SecretRenewals
from overspan.adapters.kubernetes.manifests.storage import name_data
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data.requests import FlushProgress

POD = SimpleNamespace(uid="u", name="a-0", namespace="lab")


class World:
    """The cluster of one launch, whose pod may wait for its store."""

    def __init__(self) -> None:
        self.status = 200
        self.written: list[dict[str, Any]] = []
        self.told: list[ExecCommand] = []
        self.away = False
        self.stores = {"s3": StoreAccess("s3", access_key="first", secret_key="the-secret")}
        self.connection = self
        self.trouble = ""
        self.watched = SimpleNamespace(
            token="t-7-0",
            summary=SimpleNamespace(stores=("s3",)),
            gone=False,
            busy=0,
            namespace="lab",
            cursor=None,
            sending={},
            list_sending=lambda snapshot, cursor: [POD] if self.trouble else [],
        )
        self.renewals = SecretRenewals(cast(Launches, self), self.stores)

    def snapshot(self, watched: object) -> None:
        return None

    def calls(self, namespace: str) -> World:
        return self

    async def merge(self, document: dict[str, Any]) -> ApiAnswer:
        if self.away:
            raise Unreachable("away")
        self.written.append(document)
        return ApiAnswer(self.status, {"message": "secrets is forbidden"} if self.status >= 400 else {})

    def execute(self, command: ExecCommand, timeout: float) -> tuple[int, str]:
        self.told.append(command)
        return 0, ""

    def renew(self, key: str) -> None:
        self.stores["s3"] = StoreAccess("s3", access_key=key, secret_key="the-secret")

    def look(self) -> None:
        async def run() -> None:
            self.renewals._due = 0.0
            self.watched.sending = {"u": FlushProgress(1, self.trouble)}
            self.renewals.begin([cast(WatchedLaunch, self.watched)])
            assert self.renewals._look is not None
            await self.renewals._look

        asyncio.run(run())

    def key(self) -> str:
        return str(json.loads(base64.b64decode(self.written[-1]["data"]["s3.json"]))["access_key"])


def test_a_secret_is_written_once_a_version() -> None:
    world = World()
    for key in ("first", "first", "second", "second"):
        world.renew(key)
        world.look()
    assert (len(world.written), world.key()) == (2, "second")
    assert world.written[-1]["metadata"] == {"name": name_data("t-7-0")}


def test_one_that_may_not_be_written_is_said_once_and_tried_again_later(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.status = 403
    for _ in range(3):
        world.look()
    assert len(world.written) == 1 and caplog.text.count("are not renewed") == 1
    assert "the-secret" not in caplog.text
    world.renewals._refused.clear()
    world.status = 200
    world.look()
    world.look()
    assert len(world.written) == 2 and secret_renewals.REFUSED_SECONDS >= 60


def test_a_server_that_is_away_gets_it_later() -> None:
    world = World()
    world.away = True
    world.look()
    world.away = False
    world.look()
    assert world.key() == "first"


def test_a_pod_that_its_store_refuses_is_told_once_a_version_and_by_its_input_alone() -> None:
    world = World()
    world.look()
    assert world.told == []
    world.trouble = "the store answers 403"
    for key in ("first", "second", "second"):
        world.renew(key)
        world.look()
    assert [json.loads(command.line)[0]["access_key"] for command in world.told] == ["first", "second"]
    assert all("the-secret" not in command.path and command.line.endswith(b"\n") for command in world.told)
