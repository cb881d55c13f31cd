"""Deferred tasks of a set: the native job of a task that waits for the end of another comes at its turn."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.fakes.slurm_controller import Site
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.deferred_scenes import GROUP, find, list_tasks, name_of, program, until_task

from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.lifecycle.readiness import reason_of
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.states import State


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    made = SlurmWorld(tmp_path, monkeypatch)
    made.transport.programs = program
    return made


def test_a_deferred_task_has_no_native_job_before_its_turn(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            job = await until_task(daemon, number, "train", State.RUNNING)
            assert list_tasks(world) == ["server", "train"]
            assert [reason_of(job, task) for task in job.tasks] == ["None", "None", "Dependency"]
            await until_task(daemon, number, "judge", State.RUNNING)
            job = await daemon.until(number, State.COMPLETED)
        assert list_tasks(world) == ["server", "train", "judge"]
        assert find(world, "judge").submit >= find(world, "train").end
        assert find(world, "server").end >= find(world, "judge").end
        assert [len(task.attempts) for task in job.tasks] == [1, 1, 1] and job.launch == 0

    world.play(story())


@pytest.mark.parametrize("start", ["together", "independent"])
def test_all_of_a_group_that_starts_together_is_asked_for_at_once(world: SlurmWorld, start: str) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP.replace("restart: task", f"restart: task\nstart: {start}"))
            await until_task(daemon, number, "train", State.RUNNING)
            assert list_tasks(world) == ["server", "train", "judge"][: 3 if start == "together" else 2]
            await daemon.until(number, State.COMPLETED)
        assert list_tasks(world) == ["server", "train", "judge"]

    world.play(story())


def test_a_deferred_task_that_is_never_to_run_has_no_native_job(world: SlurmWorld) -> None:
    world.transport.programs = lambda task: Behaviour(20, code=3) if task.name == "train" else program(task)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await daemon.until(number, State.FAILED)
            await asyncio.sleep(120)
        assert list_tasks(world) == ["server", "train"] and all(job.over for job in world.slurm.jobs.values())

    world.play(story())


@pytest.mark.parametrize("seconds", [30, 300])
def test_without_a_daemon_the_turn_waits_for_the_next_one(world: SlurmWorld, seconds: float) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await until_task(daemon, number, "train", State.RUNNING)
            daemon.killed = True
        await asyncio.sleep(seconds)
        assert list_tasks(world) == ["server", "train"]
        async with world.daemon() as daemon:
            job = await daemon.until(number, State.COMPLETED)
        assert list_tasks(world) == ["server", "train", "judge"]
        assert [len(task.attempts) for task in job.tasks] == [1, 1, 1] and job.launch == 0

    world.play(story())


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.HANGS])
@pytest.mark.parametrize("killed", [False, True])
def test_a_submission_in_doubt_doubles_nothing(world: SlurmWorld, trouble: Trouble, killed: bool) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await until_task(daemon, number, "train", State.RUNNING)
            world.transport.fail("sbatch", trouble, 1)
            await until_task(daemon, number, "train", State.COMPLETED)
            await asyncio.sleep(3)
            daemon.killed = killed
        async with world.daemon() as daemon:
            job = await daemon.until(number, State.COMPLETED)
        assert [task.state for task in job.tasks] == [State.COMPLETED] * 3
        assert len([job for job in world.slurm.jobs.values() if name_of(job) == "judge" and job.start]) == 1

    world.play(story())


@pytest.mark.parametrize("life", [0.3, 0.7, 1.1, 2.3])
def test_daemons_that_die_all_through_the_turn_lose_and_double_nothing(world: SlurmWorld, life: float) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await until_task(daemon, number, "train", State.RUNNING)
            await asyncio.sleep(57)
            daemon.killed = True
        for _ in range(20):
            async with world.daemon() as daemon:
                await asyncio.sleep(life)
                daemon.killed = True
        async with world.daemon() as daemon:
            job = await daemon.until(number, State.COMPLETED)
        assert list_tasks(world) == ["server", "train", "judge"]
        assert [len(task.attempts) for task in job.tasks] == [1, 1, 1] and job.launch == 0

    world.play(story())


def test_a_cancel_while_the_native_job_waits_leaves_nothing(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await until_task(daemon, number, "train", State.RUNNING)
            for name in world.slurm.nodes:
                world.slurm.drain(name)
            job = await until_task(daemon, number, "judge", State.CONFIGURING)
            await asyncio.sleep(20)
            job = await daemon.job(number)
            assert job.task("judge").reason not in ("None", "Dependency"), "what Slurm says of its native job"
            assert list_tasks(world) == ["server", "train", "judge"] and find(world, "judge").waits
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            await daemon.until(number, State.CANCELLED)
            await asyncio.sleep(120)
        assert all(native.over for native in world.slurm.jobs.values())

    world.play(story())


@pytest.mark.parametrize("killed", [False, True])
def test_one_that_waits_too_long_gives_back_what_the_others_hold(world: SlurmWorld, killed: bool) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP.replace("restart: task", "restart: task\nstart_timeout: 2m"))
            await until_task(daemon, number, "train", State.RUNNING)
            world.slurm.drain("node2")
            world.slurm.drain("node3")
            world.slurm.drain("node1")
            await until_task(daemon, number, "judge", State.CONFIGURING)
            await asyncio.sleep(60)
            daemon.killed = killed
        async with world.daemon() as daemon:
            job = await daemon.until(number, State.PENDING)
            assert job.launch == 1 and job.task("train").state is State.COMPLETED
            await asyncio.sleep(60)
            assert find(world, "server").waits and find(world, "judge").waits
            for name in world.slurm.nodes:
                world.slurm.resume(name)
            job = await daemon.until(number, State.COMPLETED)
        assert [len(task.attempts) for task in job.tasks] == [2, 1, 2]
        assert list_tasks(world) == ["server", "train", "judge", "server", "judge"]

    world.play(story())


def test_a_deferred_task_that_could_never_run_is_refused_at_submission(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            wide = "needs: [ok:train]\nresources: {cpus: 64}"
            with pytest.raises(Rejected):
                await daemon.submit(GROUP.replace("needs: [ok:train]\nresources: {cpus: 4}", wide))
        assert not world.slurm.jobs

    world.play(story())


def test_what_runs_beside_a_deferred_task_has_time_for_its_wait(world: SlurmWorld) -> None:
    world.slurm.site = Site()

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP.replace("restart: task", "restart: task\nstart_timeout: 1h"))
            await daemon.until(number, State.COMPLETED)
        limits = {task: find(world, task).request.limit for task in ("server", "train", "judge")}
        assert limits["server"] is not None and limits["server"] >= 3600 + 600
        assert limits["train"] is not None and limits["train"] < 600
        assert limits["judge"] is not None and limits["judge"] < 600

    world.play(story())
