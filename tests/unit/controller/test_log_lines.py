"""What the daemon's log says of jobs and calls: each change of state, each call that failed, with its fields."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, end, start_job
from tests.unit.controller.virtual_time import VirtualClock, run_virtually

from overspan.adapters.contract import Refusal


@pytest.fixture
def bench(caplog: pytest.LogCaptureFixture) -> Bench:
    caplog.set_level(logging.INFO)
    bench = Bench(FakeCluster())
    bench.clock = VirtualClock()
    return bench


def lines(caplog: pytest.LogCaptureFixture, word: str) -> list[tuple[str, object, object]]:
    return [
        (record.getMessage(), record.__dict__.get("job"), record.__dict__.get("cluster"))
        for record in caplog.records
        if word in record.getMessage()
    ]


def test_each_change_of_state_is_a_line(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        await bench.start()
        await start_job(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock()))
        await asyncio.sleep(1)
        await bench.controller.close()

    run_virtually(bench.clock, run)
    assert lines(caplog, "job 1") == [
        ("job 1: PENDING", 1, "local"),
        ("job 1: CONFIGURING", 1, "local"),
        ("job 1: RUNNING", 1, "local"),
        ("job 1: COMPLETED", 1, "local"),
    ]


def test_tasks_of_a_group_have_lines_of_their_own(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        await bench.start()
        await start_job(bench, "one two")
        await bench.controller.close()

    run_virtually(bench.clock, run)
    assert ("job 1, task two: RUNNING", 1, "local") in lines(caplog, "task two")


def test_a_refusal_for_now_is_told_when_its_words_change(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.cluster.refusals = [Refusal("", words, transient=True) for words in ("no quota", "no quota", "no room")]

    async def run() -> None:
        await bench.start()
        await bench.submit()
        await asyncio.sleep(3600)
        await bench.controller.close()

    run_virtually(bench.clock, run)
    said = [message.partition("; again")[0] for message, *_ in lines(caplog, "refused for now")]
    assert said == ["job 1: submit is refused for now: no quota", "job 1: submit is refused for now: no room"]
    assert bench.cluster.submits == 4


def test_calls_that_fail_are_told_with_when_they_are_made_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        await bench.start()
        bench.cluster.fail(True)
        await bench.submit()
        await asyncio.sleep(1)
        bench.cluster.fail(False)
        await asyncio.sleep(600)
        await bench.controller.close()

    run_virtually(bench.clock, run)
    (first, job, cluster), *_ = lines(caplog, "failed")
    assert first.startswith("cluster local: submit of jobs 1 failed: no route to the cluster; again in ")
    assert (job, cluster) == (1, "local")
    assert lines(caplog, "made again")[0][0] == "cluster local: submit of jobs 1 is made again under their tokens"
