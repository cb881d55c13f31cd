"""Pipelines on Slurm: a stage is a native job of its own, submitted at its turn. The controller is the real one."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from tests.fakes.slurm_controller import Site
from tests.fakes.slurm_jobs import Behaviour, NativeJob
from tests.fakes.slurm_world import Daemon, SlurmWorld

from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.lifecycle.readiness import reason_of
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.states import State

PIPELINE = """\
name: p
---
name: fit
slurm: {requeue: ''}
run: work 20 0
---
name: judge
slurm: {requeue: ''}
run: work 5 0
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    made = SlurmWorld(tmp_path, monkeypatch)
    made.transport.behave = behave
    return made


def behave(native: NativeJob) -> Behaviour:
    """`work SECONDS CODE` in the script."""
    found = re.search(r"work (\d+) (\d+)", native.request.script)
    assert found is not None
    return Behaviour(float(found[1]), int(found[2]))


def list_natives(world: SlurmWorld) -> list[str]:
    """What each native job is for, in the order of their ids."""
    return ["fit" if "work 20" in job.request.script else "judge" for _, job in sorted(world.slurm.jobs.items())]


async def until_gap(daemon: Daemon, number: int) -> None:
    """Wait until the first stage has ended."""
    while (await daemon.job(number)).task("fit").state is not State.COMPLETED:
        await asyncio.sleep(0.2)


def test_a_stage_is_a_native_job_that_is_submitted_at_its_turn(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(PIPELINE)
            job = await daemon.until(number, State.RUNNING)
            assert list_natives(world) == ["fit"]
            assert [reason_of(job, task) for task in job.tasks] == ["None", "Dependency"]
            job = await daemon.until(number, State.COMPLETED)
        assert list_natives(world) == ["fit", "judge"]
        first, second = (world.slurm.jobs[native] for native in sorted(world.slurm.jobs))
        assert first.over and second.submit >= first.end
        assert [len(task.attempts) for task in job.tasks] == [1, 1]
        assert (job.launch, job.restarts) == (1, 0)

    world.play(story())


def test_a_failed_stage_leaves_nothing_behind_it(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(PIPELINE.replace("20 0", "20 3"))
            job = await daemon.until(number, State.FAILED)
            await asyncio.sleep(60)
        assert (job.exit_code, job.task("judge").state) == (3, State.CANCELLED)
        assert list_natives(world) == ["fit"]

    world.play(story())


@pytest.mark.parametrize("epilog", [0.0, 60.0])
def test_the_native_job_of_the_stage_before_is_never_taken_for_the_next(world: SlurmWorld, epilog: float) -> None:
    """It may be COMPLETING for a while, or just have left the queue."""
    world.slurm.site = Site(epilog=epilog)

    async def story() -> None:
        async with world.daemon() as daemon:
            job = await daemon.until(await daemon.submit(PIPELINE), State.COMPLETED)
        assert list_natives(world) == ["fit", "judge"]
        assert len(world.slurm.starts) == 2
        assert job.task("judge").attempts[0].launched_at >= (job.task("fit").ended_at or 0)

    world.play(story())


def test_a_stage_that_slurm_requeues_stays_the_same_native_job(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(PIPELINE.replace("work 5 0", "work 50 0"))
            while len(world.slurm.starts) < 2:
                await asyncio.sleep(1)
            assert world.slurm.requeue(world.slurm.jobs[max(world.slurm.jobs)]) == ""
            job = await daemon.until(number, State.COMPLETED)
        assert list_natives(world) == ["fit", "judge"] and len(world.slurm.starts) == 3
        assert [len(task.attempts) for task in job.tasks] == [1, 2]
        assert (job.launch, job.restarts) == (2, 1)

    world.play(story())


def test_a_daemon_that_dies_between_two_stages_loses_and_doubles_none(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(PIPELINE)
            await daemon.until(number, State.RUNNING)
            daemon.killed = True
        await asyncio.sleep(300)
        assert list_natives(world) == ["fit"]
        async with world.daemon() as daemon:
            await until_gap(daemon, number)
            daemon.killed = True
        async with world.daemon() as daemon:
            await daemon.until(number, State.COMPLETED)
        assert list_natives(world) == ["fit", "judge"] and len(world.slurm.starts) == 2

    world.play(story())


def test_a_pipeline_that_is_cancelled_between_two_stages_submits_nothing_more(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(PIPELINE)
            await until_gap(daemon, number)
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            job = await daemon.until(number, State.CANCELLED)
            await asyncio.sleep(120)
        assert [task.state for task in job.tasks] == [State.COMPLETED, State.CANCELLED]
        assert all(native.over for native in world.slurm.jobs.values())
        assert len(world.slurm.starts) <= 2

    world.play(story())


def test_a_later_stage_that_slurm_would_refuse_is_refused_at_submission(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            with pytest.raises(Rejected, match="node configuration is not available"):
                await daemon.submit(PIPELINE.replace("run: work 5 0", "num_nodes: 500\nrun: work 5 0"))
        assert world.slurm.jobs == {}

    world.play(story())
