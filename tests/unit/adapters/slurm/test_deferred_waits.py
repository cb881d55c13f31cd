"""A deferred task's native job waits in the queue: what the others do through this time, and what is asked of Slurm."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.deferred_scenes import GROUP, find, list_tasks, program, until_task

from overspan.bridge.model.states import State

SHORT = GROUP.replace("restart: task", "restart: task\nstart_timeout: 1m")


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    made = SlurmWorld(tmp_path, monkeypatch)
    made.transport.programs = program
    return made


@pytest.mark.parametrize("recoveries", [0, 3])
def test_a_primary_task_that_runs_is_not_given_up_for_one_that_waits(world: SlurmWorld, recoveries: int) -> None:
    world.transport.programs = lambda task: Behaviour(300) if task.name == "server" else program(task)
    text = SHORT.replace("[train, judge]", "[server, train, judge]")
    text = text.replace("resources: {cpus: 4}", f"resources: {{cpus: 4}}\nmax_recoveries: {recoveries}")

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(text)
            await until_task(daemon, number, "train", State.RUNNING)
            for name in world.slurm.nodes:
                world.slurm.drain(name)
            await until_task(daemon, number, "judge", State.CONFIGURING)
            await asyncio.sleep(90)
            job = await daemon.job(number)
            assert job.launch == 0 and job.task("server").state is State.RUNNING
            for name in world.slurm.nodes:
                world.slurm.resume(name)
            job = await daemon.until(number, State.COMPLETED)
        assert list_tasks(world) == ["server", "train", "judge"]
        assert [len(task.attempts) for task in job.tasks] == [1, 1, 1]

    world.play(story())


def test_where_nobody_holds_nodes_the_one_that_waits_keeps_its_place(world: SlurmWorld) -> None:
    world.transport.programs = lambda task: Behaviour(70) if task.name == "server" else program(task)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SHORT)
            await until_task(daemon, number, "train", State.RUNNING)
            for name in world.slurm.nodes:
                world.slurm.drain(name)
            await until_task(daemon, number, "judge", State.CONFIGURING)
            await asyncio.sleep(90)
            assert (await daemon.job(number)).launch == 0
            for name in world.slurm.nodes:
                world.slurm.resume(name)
            await daemon.until(number, State.COMPLETED)
        assert list_tasks(world) == ["server", "train", "judge"]

    world.play(story())


@pytest.mark.parametrize("jump", [-1800.0, 1800.0])
def test_a_clock_that_is_set_neither_shortens_nor_lengthens_the_wait(world: SlurmWorld, jump: float) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SHORT)
            await until_task(daemon, number, "train", State.RUNNING)
            for name in world.slurm.nodes:
                world.slurm.drain(name)
            await until_task(daemon, number, "judge", State.CONFIGURING)
            await asyncio.sleep(20)
            world.set_by += jump
            await asyncio.sleep(20)
            assert (await daemon.job(number)).launch == 0
            await asyncio.sleep(60)
            assert (await daemon.job(number)).launch == 1

    world.play(story())


def test_what_runs_beside_has_time_until_primary_tasks_have_ended_and_the_wait_is_over(world: SlurmWorld) -> None:
    """No loss ends the wait while a primary task runs."""
    text = SHORT.replace("[train, judge]", "[other, train, judge]")

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(f"{text}---\nname: other\nresources: {{cpus: 4}}\ntime: 1h\nrun: judge\n")
            await daemon.until(number, State.COMPLETED)
        limit = find(world, "server").request.limit
        assert limit is not None and limit >= 3600 + 60 + 300

    world.transport.programs = lambda task: Behaviour(20) if task.name == "other" else program(task)
    world.play(story())
