"""Allocations whose cluster does not notice when their client is gone: who holds one, and its end when nobody does."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, play, start_job, turn, until

from overspan.adapters.abilities import StepEntrance, StepRequest
from overspan.bridge.controller.features.allocations import COME_SECONDS, GONE_SECONDS, StepParameters
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model import events
from overspan.bridge.model.allocations import HOLD_SCRIPT, KEEP_SCRIPT
from overspan.bridge.model.errors import Conflict, InvalidRequest, NotFound
from overspan.bridge.model.spec import Form, JobSpec, Origin, TaskSpec
from overspan.bridge.readers.submission import Submission


class StepCluster(FakeCluster):
    """A cluster with steps of its own."""

    def state(self) -> dict[str, Any]:
        return {"prepare_step": self.prepare_step}

    async def prepare_step(self, request: StepRequest) -> StepEntrance:
        return StepEntrance((request.handle, *request.words), ("guard", str(request.own)))


def prepare(text: str = HOLD_SCRIPT) -> Callable[[Bench], None]:
    """Has every job of a bench be an allocation, or a batch script."""

    def change(bench: Bench) -> None:
        def read(submission: Submission, kinds: object, now: float) -> ParsedSubmission:
            task = TaskSpec("batch", Form.BATCH, run=text)
            return ParsedSubmission(JobSpec("interactive", (task,), origin=Origin(user="me", directory="/")), {})

        bench.reader = read

    return change


async def hold(bench: Bench) -> AsyncGenerator[bytes]:
    lines = await bench.controller.allocations.hold("1")
    assert await anext(lines) == b"\n"
    return lines


async def is_ended(bench: Bench) -> bool:
    """Whether the cluster was told to end it."""
    await turn()
    return any(isinstance(order.event, events.Cancel) for order in bench.cluster.orders)


def test_one_that_nobody_comes_to_hold_is_cancelled() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.clock.advance(COME_SECONDS - 1)
        assert not await is_ended(bench)
        bench.clock.advance(1)
        assert await is_ended(bench)

    play(scene, StepCluster(), prepare())


def test_one_is_kept_while_it_is_held_and_cancelled_when_its_client_is_gone() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        lines = await hold(bench)
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.clock.advance(10 * COME_SECONDS)
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        bench.clock.advance(10 * COME_SECONDS)
        await lines.aclose()
        bench.clock.advance(GONE_SECONDS - 1)
        lines = await hold(bench)
        assert not any("allocation" in name for name in bench.clock.due())
        bench.clock.advance(10 * COME_SECONDS)
        assert not await is_ended(bench)
        await lines.aclose()
        bench.clock.advance(GONE_SECONDS)
        assert await is_ended(bench)

    play(scene, StepCluster(), prepare())


def test_a_new_daemon_waits_for_the_client_of_the_former() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        await hold(bench)
        await bench.kill()
        await bench.start()
        bench.clock.advance(COME_SECONDS - 1)
        assert not await is_ended(bench)
        bench.clock.advance(1)
        assert await is_ended(bench)

    play(scene, StepCluster(), prepare())


def test_a_cluster_that_is_silent_is_told_when_it_answers() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.cluster.fail(True)
        await turn()
        bench.clock.advance(COME_SECONDS)
        assert not await is_ended(bench)
        bench.cluster.fail(False)
        for _ in range(20):
            bench.clock.advance(60)
            await turn()
        assert await is_ended(bench)

    play(scene, StepCluster(), prepare())


def test_the_end_of_the_job_is_told_to_whoever_holds_it() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        lines = await hold(bench)
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        told = [line async for line in lines]
        assert told[-1] == b"over\n" and bench.state() == "COMPLETED"
        bench.clock.advance(10 * COME_SECONDS)
        assert not await is_ended(bench) and not any("allocation" in name for name in bench.clock.due())

    play(scene, StepCluster(), prepare())


@pytest.mark.parametrize(
    ("cluster", "text"), [(StepCluster, KEEP_SCRIPT), (StepCluster, "#!/bin/sh\n"), (FakeCluster, HOLD_SCRIPT)]
)
def test_what_needs_no_client_or_notices_itself_is_left_alone(cluster: type[FakeCluster], text: str) -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        bench.clock.advance(10 * COME_SECONDS)
        assert not await is_ended(bench)

    play(scene, cluster(), prepare(text))


def test_steps_are_the_clusters_own_while_the_job_has_its_nodes() -> None:
    async def scene(bench: Bench) -> None:
        wish = StepParameters(("true",), {}, "/", own=True)
        prepare_step = bench.controller.allocations.prepare_step
        with pytest.raises(NotFound):
            await prepare_step("1", wish)
        await bench.submit()
        with pytest.raises(Conflict, match="does not run yet"):
            await prepare_step("1", wish)
        await until(lambda: "1.0" in bench.cluster.journals)
        bench.cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        assert await prepare_step("1", wish) == StepEntrance(("1.0", "true"), ("guard", "True"))
        bench.cluster.tell("1.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "COMPLETED")
        with pytest.raises(Conflict, match="has ended"):
            await prepare_step("1", wish)

    play(scene, StepCluster(), prepare())


def test_elsewhere_steps_run_in_the_job_alone() -> None:
    async def scene(bench: Bench) -> None:
        await start_job(bench)
        with pytest.raises(InvalidRequest, match="takes no steps from outside"):
            await bench.controller.allocations.prepare_step("1", StepParameters(("true",), {}, "/"))

    play(scene)
