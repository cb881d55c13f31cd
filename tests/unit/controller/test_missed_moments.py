"""Orders, times and memory of the controller in the moments that are easily missed."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest
from tests.unit.controller.fakes import Bench, begin, end, play, start_job, turn, until

from overspan.bridge.controller.core.registry import KEEP_FINISHED, KEEP_SECONDS, JobEntry, Registry
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State


def _finished(job_id: int, ended_at: float) -> JobEntry:
    job = new_job(job_id, JobSpec("j", (TaskSpec("j"),)), 0.0)
    job = replace(job, state=State.COMPLETED, ended_at=ended_at)
    return JobEntry(job, "local", "me")


def test_finished_jobs_leave_memory_though_nobody_looks_at_the_queue() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        bench.clock.now += KEEP_SECONDS + 1
        await start_job(bench)
        assert bench.controller.recorder.registry.get(1) is None

    play(scene)


def test_a_finished_job_that_is_locked_leaves_memory_later() -> None:
    async def scene() -> None:
        registry = Registry()
        for job_id in range(KEEP_FINISHED + 1):
            registry.add(_finished(job_id + 1, 10.0))
        async with registry.locked([1]):
            registry.forget_finished(10.0)
            assert registry.get(1) is not None
        registry.forget_finished(10.0 + 2 * KEEP_SECONDS)
        assert len(registry) == 0

    asyncio.run(scene())


def test_an_order_whose_job_left_memory_is_not_answered_as_done() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        orders = bench.controller.orders

        def make(at: float, task: str) -> events.Requeue:
            return events.Requeue(at)

        given = asyncio.ensure_future(orders.give("1", make))
        await asyncio.sleep(0)
        bench.controller.recorder.registry.remove(1)
        with pytest.raises(Conflict, match="try"):
            await given

    play(scene)


def test_the_deadline_of_a_job_that_waits_on_its_cluster_is_an_order() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one deadline=50")
        await until(lambda: "1.0" in bench.cluster.journals)
        await turn()
        bench.clock.advance(60)
        await until(lambda: bool(bench.cluster.orders))
        await turn()
        assert [type(order.event) for order in bench.cluster.orders] == [events.Expire]
        bench.cluster.tell("1.0", bench.cluster.orders[0].event)
        await until(lambda: bench.state() == "DEADLINE")
        assert not bench.repository.rows

    play(scene)


def test_the_deadline_of_a_granted_job_is_its_supervisors() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit("one deadline=50")
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        bench.clock.advance(60)
        await turn()
        assert bench.cluster.orders == []

    play(scene)
