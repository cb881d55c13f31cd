"""Cancels and holds in the middle of something: a submission in doubt, a requeue, an order that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.slurm_controller import Site
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import Daemon, SlurmWorld

from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict
from overspan.bridge.model.events import Event
from overspan.bridge.model.states import State

SCRIPT = "#!/bin/bash\n#SBATCH --requeue\ntrain\n"
GROUP = "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"
SET = GROUP.replace("parallel\n", "parallel\nrestart: task\n")
OVER_TWO_PARTITIONS = """\
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
resources: {cpus: 4}
run: train
---
name: server
slurm: {partition: short}
resources: {cpus: 4}
run: serve
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


async def order(daemon: Daemon, number: int, make: Callable[[float], Event]) -> None:
    """Give an order about a job."""
    await daemon.controller.orders.give(str(number), lambda at, task: make(at))


async def cancel(daemon: Daemon, number: int) -> None:
    """Cancel a job."""
    done = await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
    assert not done.errors


def test_a_hetjob_that_is_submitted_again_is_not_taken_for_two_jobs(world: SlurmWorld) -> None:
    world.transport.programs = lambda task: Behaviour(20)
    world.transport.fail("sbatch", Trouble.HANGS, 1)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(OVER_TWO_PARTITIONS)
            await daemon.until(number, State.COMPLETED, State.CANCELLED)
            assert (await daemon.job(number)).state is State.COMPLETED
        assert len(world.slurm.starts) == 1

    world.play(story())


@pytest.mark.parametrize("killed", [False, True])
def test_what_is_cancelled_while_its_submission_is_in_doubt_never_starts(world: SlurmWorld, killed: bool) -> None:
    world.slurm.site = Site(start=0.0)
    world.transport.fail("sbatch", Trouble.HANGS, 1)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await asyncio.sleep(20)
            await cancel(daemon, number)
            daemon.killed = killed
        async with world.daemon() as daemon:
            await daemon.until(number, State.CANCELLED)
            await asyncio.sleep(300)
        assert not world.slurm.starts and all(job.over for job in world.slurm.jobs.values())

    world.play(story())


@pytest.mark.parametrize("text", [SCRIPT, GROUP, SET], ids=["script", "allocation", "set"])
@pytest.mark.parametrize("killed", [False, True])
def test_what_is_held_while_its_submission_is_in_doubt_starts_at_its_release(
    world: SlurmWorld, text: str, killed: bool
) -> None:
    world.slurm.site = Site(start=0.0)
    world.transport.behave = lambda job: Behaviour(20)
    world.transport.programs = lambda task: Behaviour(20)
    world.transport.fail("sbatch", Trouble.HANGS, 1)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(text, "script" if text == SCRIPT else "job_file")
            await asyncio.sleep(20)
            await order(daemon, number, lambda at: events.Hold(at, "ada"))
            daemon.killed = killed
        async with world.daemon() as daemon:
            await asyncio.sleep(300)
            assert not world.slurm.starts and (await daemon.job(number)).held
            await order(daemon, number, lambda at: events.Release(at, "ada"))
            await asyncio.sleep(60)
        assert len(world.slurm.starts) == (2 if text == SET else 1)

    world.play(story())


@pytest.mark.parametrize("text", [SCRIPT, GROUP], ids=["script", "allocation"])
def test_a_hold_that_comes_after_the_start_changes_nothing(world: SlurmWorld, text: str) -> None:
    """Of a submission whose answer is lost nobody knows that it has started."""
    world.slurm.site = Site(start=0.0)
    world.transport.behave = lambda job: Behaviour(200)
    world.transport.programs = lambda task: Behaviour(200)
    world.transport.fail("sbatch", Trouble.LOST, 1)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(text, "script" if text == SCRIPT else "job_file")
            await asyncio.sleep(20)
            await order(daemon, number, lambda at: events.Hold(at, "ada"))
            job = await daemon.until(number, State.COMPLETED)
            assert job.launch == 0 and not job.held and len(world.slurm.starts) == 1

    world.play(story())


@pytest.mark.parametrize("killed", [False, True])
def test_a_cancel_that_is_overtaken_by_a_requeue_reaches_the_native_job(world: SlurmWorld, killed: bool) -> None:
    world.transport.behave = lambda job: Behaviour(None, on_term=2.0)

    async def story() -> None:
        async with world.daemon() as daemon:
            number, other = [await daemon.submit(SCRIPT, "script") for _ in range(2)]
            await daemon.until(number, State.RUNNING)
            world.transport.fail("scontrol", Trouble.HANGS, 1)
            await order(daemon, other, lambda at: events.SetPriority(at, 7))
            await asyncio.sleep(1)
            await cancel(daemon, number)
            world.slurm.requeue(world.slurm.jobs[1])
            await daemon.until(number, State.PENDING, State.CANCELLED)
            daemon.killed = killed
        async with world.daemon() as daemon:
            await daemon.until(number, State.CANCELLED)
            await asyncio.sleep(300)
        assert world.slurm.jobs.get(1) is None or world.slurm.jobs[1].over
        assert [name for _, name in world.slurm.starts] == ["1", "2"]

    world.play(story())


def test_a_cancel_in_the_last_seconds_of_the_former_run_ends_the_next_one(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(None, on_term=20.0)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
            await order(daemon, number, lambda at: events.Requeue(at, "ada"))
            await daemon.until(number, State.PENDING)
            await asyncio.sleep(3)
            await cancel(daemon, number)
            await daemon.until(number, State.CANCELLED)
            await asyncio.sleep(400)
        assert len(world.slurm.starts) == 1 and all(job.over for job in world.slurm.jobs.values())

    world.play(story())


def test_what_is_being_cancelled_cannot_be_released(world: SlurmWorld) -> None:
    for node in world.slurm.nodes:
        world.slurm.drain(node)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await asyncio.sleep(15)
            await order(daemon, number, lambda at: events.Hold(at, "ada"))
            await asyncio.sleep(15)
            world.transport.fail("scancel", Trouble.HANGS, 1)
            await cancel(daemon, number)
            await asyncio.sleep(1)
            with pytest.raises(Conflict):
                await order(daemon, number, lambda at: events.Release(at, "ada"))
            await daemon.until(number, State.CANCELLED)
        assert not world.slurm.starts

    world.play(story())


def test_a_job_that_is_cancelled_while_its_requeued_run_ends_has_not_ended_before_its_start(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(None, on_term=None)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
            await asyncio.sleep(20)
            await cancel(daemon, number)
            await asyncio.sleep(5)
            world.slurm.requeue(world.slurm.jobs[1], hold=True)
            job = await daemon.until(number, State.CANCELLED)
            assert job.started_at and job.ended_at and job.ended_at - job.started_at >= 20

    world.play(story())


def test_elements_that_start_right_before_their_cancel_are_over_when_they_have_ended(world: SlurmWorld) -> None:
    world.slurm.site = Site(start=7.0)
    world.transport.behave = lambda job: Behaviour(None, on_term=None)
    early: list[int] = []

    async def story() -> None:
        async with world.daemon() as daemon:
            array = await daemon.submit(SCRIPT.replace("--requeue", "--array=0-2"), "script")
            while not world.slurm.starts:
                await asyncio.sleep(0.1)
                world.slurm.catch_up(world.now())
            assert {job.state for job in await daemon.elements(array)} == {State.PENDING}
            await cancel(daemon, array)
            for _ in range(900):
                runs = {job.index for job in world.slurm.jobs.values() if job.state == "RUNNING"}
                over = {job.element.index for job in await daemon.elements(array) if job.over and job.element}
                early.extend(index for index in runs & over if index is not None)
                await asyncio.sleep(0.1)
            assert {job.state for job in await daemon.elements(array)} == {State.CANCELLED}
        assert early == [] and all(job.over for job in world.slurm.jobs.values())

    world.play(story())


def test_elements_that_are_cancelled_while_they_wait_are_so_at_the_next_look(world: SlurmWorld) -> None:
    world.slurm.site = Site(start=90.0)

    async def story() -> None:
        async with world.daemon() as daemon:
            array = await daemon.submit(SCRIPT.replace("--requeue", "--array=0-2"), "script")
            await asyncio.sleep(15)
            await cancel(daemon, array)
            await asyncio.sleep(12)
            assert {job.state for job in await daemon.elements(array)} == {State.CANCELLED}
            await asyncio.sleep(120)
        assert not world.slurm.starts

    world.play(story())


def test_a_cancelled_element_of_a_waiting_array_leaves_the_others_alone(world: SlurmWorld) -> None:
    world.slurm.site = Site(start=90.0)
    world.transport.behave = lambda job: Behaviour(5)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit("#!/bin/bash\n#SBATCH --array=0-3\ntrain\n", "script")
            await asyncio.sleep(20)
            done = await daemon.controller.orders.cancel(CancelRequest((f"{number}_1",), by="ada"))
            assert done.done == [f"{number}_1"]
            await asyncio.sleep(600)
        assert [name for _, name in world.slurm.starts] == ["1_0", "1_2", "1_3"]

    world.play(story())


def test_a_submission_that_comes_after_its_job_was_given_up_is_cancelled(world: SlurmWorld) -> None:
    """An overloaded slurmctld carries an sbatch out when the daemon has looked for it as often as it does."""
    world.transport.behave = lambda job: Behaviour(600)

    async def story() -> None:
        async with world.daemon() as daemon:
            world.transport.fail("sbatch", Trouble.LATE, 1)
            number = await daemon.submit(SCRIPT, "script")
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            await daemon.until(number, State.CANCELLED)
            assert not world.slurm.jobs
            # It comes with the next sbatch.
            other = await daemon.submit(SCRIPT, "script")
            await daemon.until(other, State.RUNNING)
            await asyncio.sleep(60)
            late, mine = world.slurm.jobs.values()
            assert (late.over, mine.over) == (True, False)

    world.play(story())
