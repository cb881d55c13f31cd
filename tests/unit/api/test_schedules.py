"""Routes of schedules over a controller of fakes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

import httpx2
from tests.unit.controller.fakes import Bench, read, until

from overspan.bridge.api.app import build_app
from overspan.bridge.api.authorization import own_name
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.readers.submission import Submission

ME = own_name()


def reader(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """A job whose text says `cron` has a schedule; scripts are read as one task."""
    text = "one" if submission.kind == "script" else submission.text.replace("cron", "").strip()
    reading = read(replace(submission, text=text), kinds, now)
    cron = Schedule("@yearly", "UTC") if "cron" in submission.text and submission.kind != "script" else None
    return replace(reading, spec=replace(reading.spec, cron=cron))


def test_schedules_and_crontabs_over_http() -> None:
    async def scene(bench: Bench, client: httpx2.AsyncClient) -> None:
        body = {"kind": "job_file", "text": "one cron", "user": ME, "secrets": {"KEY": "hush"}}
        made = (await client.post("/v1/jobs", json=body)).json()
        assert (made["id"], made["schedule"], made["task_ids"]) == (0, 1, []) and made["next_due"] > bench.clock.now
        answer = await client.get("/v1/schedules")
        assert [row["id"] for row in answer.json()["schedules"]] == [1] and "hush" not in answer.text
        assert (await client.post("/v1/schedules/1/pause")).status_code == 200
        assert (await client.post("/v1/schedules/1/resume", json={"format": 1})).status_code == 200
        assert (await client.post("/v1/schedules/1/run")).json()["id"] == 1
        assert (await client.post("/v1/schedules/1/run")).status_code == 409
        assert (await client.post("/v1/schedules/1/delete")).status_code == 200
        assert (await client.post("/v1/schedules/1/delete")).json()["error"]["code"] == "not_found"
        assert (await client.post("/v1/schedules/0/run")).status_code == 400
        assert (await client.get("/v1/crontab")).status_code == 404
        installed = await client.post("/v1/crontab", json={"text": "@daily x\n", "environment": {"HOME": "/"}})
        assert installed.json()["ids"] == [2]
        assert (await client.get("/v1/crontab")).json()["text"] == "@daily x\n"
        wrong = (await client.post("/v1/crontab", json={"text": "@daily x\n\nx\n"})).json()["error"]
        assert wrong["place"] == {"file": "crontab", "line": 3, "column": 1}
        assert (await client.post("/v1/crontab", json={"text": "a\0"})).status_code == 400
        assert (await client.post("/v1/crontab/remove")).status_code == 200
        assert (await client.get("/v1/schedules")).json()["schedules"] == []

    async def run() -> None:
        bench = Bench()
        bench.reader = reader
        controller = await bench.start()
        transport = httpx2.ASGITransport(app=build_app(controller))
        try:
            async with httpx2.AsyncClient(transport=transport, base_url="http://span") as client:
                await scene(bench, client)
                await until(lambda: not controller.recorder.busy)
        finally:
            await controller.close()

    asyncio.run(run())
