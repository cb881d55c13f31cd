"""The routes of logins, shells and imports."""

from __future__ import annotations

import asyncio

import httpx2
from tests.unit.controller.fakes import Bench, play, start_job

from overspan.bridge.api.app import build_app


def test_a_cluster_without_logins_shells_and_imports_says_so() -> None:
    async def scene(bench: Bench) -> None:
        transport = httpx2.ASGITransport(app=build_app(bench.controller))
        async with httpx2.AsyncClient(transport=transport, base_url="http://span") as client:
            login = await client.post("/v1/clusters/local/login", json={})
            assert login.json() == {
                "format": 1,
                "message": "local: there is nothing to log in to",
                "words": [],
                "check": [],
            }
            refused = await client.post("/v1/clusters/local/import", json={"native": "42"})
            assert refused.status_code == 400 and "cannot watch" in refused.json()["error"]["message"]
            for body in ({}, {"native": 42}, {"native": "x" * 300}, {"native": "1", "more": 1}):
                assert (await client.post("/v1/clusters/local/import", json=body)).status_code == 400
            assert (await client.post("/v1/clusters/moon/login")).status_code == 404
            job = await start_job(bench)
            shell = f"/v1/jobs/{job}/shell"
            none = await client.post(shell, json={"node": 0, "command": ["true"]})
            assert none.status_code == 400 and "gives no shells" in none.json()["error"]["message"]
            for name, value in (
                ("node", -1),
                ("command", "true"),
                ("command", ["a\0"]),
                ("terminal", "y"),
                ("more", 1),
            ):
                assert (await client.post(shell, json={name: value})).status_code == 400
            assert (await client.post("/v1/jobs/999/shell", json={})).status_code == 404
        await asyncio.sleep(0)

    play(scene)
