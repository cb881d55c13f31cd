"""What becomes of users' work when Slurm requeues it, loses nodes, hangs, or has large arrays taken back.

The daemon's controller and the adapter are the real ones; Slurm is the fake, on a clock of its own.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.slurm_controller import Site
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld

from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.states import State

STUBBORN = Behaviour(None, on_term=None)
WIDE = ("--partition=short", "--nodes=2", "--exclusive", "--time=10")
"""All nodes of a partition."""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


def script(*options: str) -> str:
    """A batch script with these options."""
    return "#!/bin/bash\n" + "".join(f"#SBATCH {option}\n" for option in options) + "train\n"


def test_a_job_runs_to_its_end(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script(), "script")
            job = await daemon.until(number, State.COMPLETED)
            assert job.exit_code == 0 and len(world.slurm.starts) == 1

    world.play(story())


def test_when_slurm_ends_a_job_is_known_once_it_runs(world: SlurmWorld) -> None:
    """Of one that waits Slurm shows an estimate."""
    world.transport.behave = lambda job: STUBBORN

    async def story() -> None:
        async with world.daemon() as daemon:
            find_end = daemon.controller.clusters.get("fake").open().traits.find_end
            assert find_end is not None
            ends: list[float | None] = []
            for options in (WIDE, WIDE):
                number = await daemon.submit(script(*options), "script")
                job = await daemon.until(number, State.PENDING if ends else State.RUNNING)
                entry = daemon.controller.recorder.registry.get(number)
                assert entry is not None
                while not entry.handle:
                    await asyncio.sleep(1)
                end = await find_end(entry.handle)
                ends.append(end if end is None or job.granted_at is None else end - job.granted_at)
            assert ends == [600, None]

    world.play(story())


# --- requeued by Slurm -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", ["slurm", "span"])
@pytest.mark.parametrize("kind", ["script", "task"])
def test_a_requeued_job_runs_again_as_the_same_native_job(world: SlurmWorld, by: str, kind: str) -> None:
    world.transport.behave = lambda job: STUBBORN if job.restarts == 0 else Behaviour(5)

    async def story() -> None:
        async with world.daemon() as daemon:
            text = script("--requeue") if kind == "script" else "slurm: {requeue: ''}\nrun: train\n"
            number = await daemon.submit(text, "script" if kind == "script" else "job_file")
            await daemon.until(number, State.RUNNING)
            if by == "span":
                await daemon.controller.orders.give(str(number), lambda at, task: events.Requeue(at, "ada"))
            else:
                assert world.slurm.requeue(world.slurm.jobs[1]) == ""
            await asyncio.sleep(60)
            assert (await daemon.job(number)).state is State.PENDING
            assert (await daemon.job(number)).reason == "BeginTime"
            job = await daemon.until(number, State.COMPLETED)
            assert job.launch == 1
        assert [name for _, name in world.slurm.starts] == ["1", "1"]
        assert list_natives(world) == [1]

    world.play(story())


@pytest.mark.parametrize("site", [Site(accounting=False), Site(accounting_lag=25)], ids=["without", "late"])
def test_a_requeued_job_is_the_same_native_job_whatever_the_accounting_knows(world: SlurmWorld, site: Site) -> None:
    world.slurm.site = site
    world.transport.behave = lambda job: STUBBORN if job.restarts < 2 else Behaviour(5)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script("--requeue"), "script")
            for starts in (1, 2):
                while len(world.slurm.starts) < starts:
                    await asyncio.sleep(5)
                await asyncio.sleep(30)
                assert world.slurm.requeue(world.slurm.jobs[1]) == ""
            job = await daemon.until(number, State.COMPLETED)
            assert job.launch == 2
        assert list_natives(world) == [1]

    world.play(story())


@pytest.mark.parametrize("when", [2, 15, 60])
def test_a_job_that_is_cancelled_after_its_requeue_does_not_run_again(world: SlurmWorld, when: int) -> None:
    world.transport.behave = lambda job: STUBBORN

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script("--requeue"), "script")
            await daemon.until(number, State.RUNNING)
            world.slurm.requeue(world.slurm.jobs[1])
            await asyncio.sleep(when)
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            await daemon.until(number, State.CANCELLED)
            await asyncio.sleep(300)
        assert list_natives(world) == [1] and len(world.slurm.starts) == 1

    world.play(story())


def test_a_requeued_job_has_its_slot_and_is_not_lost_to_a_cancel(world: SlurmWorld) -> None:
    """It is Slurm's to start, whatever others wait for the limit of this daemon."""
    world.transport.behave = lambda job: STUBBORN

    async def story() -> None:
        async with world.daemon(max_running=1) as daemon:
            number = await daemon.submit(script("--requeue", "--nice=100"), "script")
            other = await daemon.submit(script(), "script")
            await daemon.until(number, State.RUNNING)
            world.slurm.requeue(world.slurm.jobs[1])
            await asyncio.sleep(200)
            assert len(world.slurm.starts) == 2
            assert (await daemon.job(number)).state is State.RUNNING
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            await daemon.until(number, State.CANCELLED)
            await daemon.until(other, State.RUNNING)
            assert [name for _, name in world.slurm.starts] == ["1", "1", "2"]

    world.play(story())


def test_a_job_that_loses_its_node_runs_again_as_the_same_native_job(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: STUBBORN if job.restarts == 0 else Behaviour(5)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script("--requeue"), "script")
            await daemon.until(number, State.RUNNING)
            world.slurm.set_down("node1")
            await daemon.until(number, State.COMPLETED)
        assert list_natives(world) == [1] and len(world.slurm.starts) == 2

    world.play(story())


def test_a_daemon_that_starts_while_a_requeued_job_is_completing_waits_for_it(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: STUBBORN if job.restarts == 0 else Behaviour(5)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script("--requeue"), "script")
            await daemon.until(number, State.RUNNING)
        world.slurm.requeue(world.slurm.jobs[1])
        await asyncio.sleep(1)
        async with world.daemon() as daemon:
            await daemon.until(number, State.COMPLETED)
        assert list_natives(world) == [1]

    world.play(story())


def test_requeued_elements_run_again_as_the_same_elements(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: STUBBORN if job.restarts == 0 and job.index in (1, 3) else Behaviour(40)

    async def story() -> None:
        async with world.daemon() as daemon:
            array = await daemon.submit(script("--requeue", "--array=0-5"), "script")
            while len(world.slurm.starts) < 6:
                await asyncio.sleep(1)
            await asyncio.sleep(15)
            for index in (1, 3):
                (element,) = [job for job in world.slurm.jobs.values() if job.index == index]
                assert world.slurm.requeue(element) == ""
            await daemon.until(array, State.COMPLETED)
        starts = Counter(name for _, name in world.slurm.starts)
        assert starts == {f"1_{index}": 1 + (index in (1, 3)) for index in range(6)}

    world.play(story())


def test_a_launch_that_no_node_answers_is_tried_again_as_the_same_native_job(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(5, launch="" if job.restarts else "silent")

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script("--requeue"), "script")
            await daemon.until(number, State.COMPLETED)
        assert list_natives(world) == [1] and len(world.slurm.starts) == 1

    world.play(story())


@pytest.mark.parametrize("wanted", [True, False])
def test_what_slurm_holds_after_a_failed_launch_is_released_or_cancelled_as_it_is(
    world: SlurmWorld, wanted: bool
) -> None:
    world.transport.behave = lambda job: Behaviour(5, launch="" if job.restarts else "prolog")

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(script("--requeue"), "script")
            await asyncio.sleep(120)
            assert (await daemon.job(number)).state is State.PENDING
            assert world.slurm.jobs[1].reason == "launch failed requeued held"
            world.slurm.resume("node1")
            if wanted:
                await daemon.controller.orders.give(str(number), lambda at, task: events.Release(at, "ada"))
                await daemon.until(number, State.COMPLETED)
            else:
                await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
                await daemon.until(number, State.CANCELLED)
        assert list_natives(world) == [1] and all(job.over for job in world.slurm.jobs.values())
        assert len(world.slurm.starts) == wanted

    world.play(story())


def list_natives(world: SlurmWorld) -> list[int]:
    """The numbers of all native jobs there ever were."""
    return sorted({job for job, _ in world.slurm.accounts} | set(world.slurm.jobs))


# --- nodes that cannot be had now ------------------------------------------------------------------------------------

GROUP = """\
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
num_nodes: 2
resources: {cpus: 4}
run: train
---
name: server
resources: {cpus: 4}
run: serve
"""


@pytest.mark.parametrize("lost", ["down", "drained", "powered off"])
def test_a_group_waits_for_a_node_that_cannot_be_had_now(world: SlurmWorld, lost: str) -> None:
    world.transport.programs = lambda task: Behaviour(20)
    takes: dict[str, Callable[[str], None]] = {
        "down": world.slurm.set_down,
        "drained": world.slurm.drain,
        "powered off": world.slurm.power_off,
    }

    async def story() -> None:
        takes[lost]("node3")
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            if lost != "powered off":
                await asyncio.sleep(100)
                job = await daemon.job(number)
                assert job.state is State.PENDING and job.reason not in ("", "None")
                world.slurm.resume("node3")
            job = await daemon.until(number, State.COMPLETED)
            assert job.launch == 0, "it waited in Slurm's own queue"
        assert [name for _, name in world.slurm.starts] == ["1"]

    world.play(story())


def test_a_group_that_loses_a_node_waits_until_there_are_enough_again(world: SlurmWorld) -> None:
    world.transport.programs = lambda task: Behaviour(60)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await daemon.until(number, State.RUNNING)
            await asyncio.sleep(20)
            world.slurm.set_down("node3")
            await asyncio.sleep(100)
            job = await daemon.job(number)
            assert job.state is State.PENDING and job.reason not in ("", "None")
            world.slurm.resume("node3")
            job = await daemon.until(number, State.COMPLETED)
        assert job.launch == 1 and len(world.slurm.starts) == 2

    world.play(story())


def test_a_group_over_two_partitions_starts_whole_as_a_hetjob(world: SlurmWorld) -> None:
    world.transport.programs = lambda task: Behaviour(20)

    async def story() -> None:
        async with world.daemon() as daemon:
            other = GROUP.replace("num_nodes: 2", "num_nodes: 1")
            number = await daemon.submit(other.replace("run: serve", "slurm: {partition: short}\nrun: serve"))
            await daemon.until(number, State.RUNNING)
            parts = world.slurm.list_components(1)
            assert len(parts) == 2 and {part.state for part in parts} == {"RUNNING"}
            assert len({part.start for part in parts}) == 1
            await daemon.until(number, State.COMPLETED)
            await asyncio.sleep(30)
        assert all(part.over for part in parts)

    world.play(story())


def test_a_group_that_never_fits_is_refused(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            with pytest.raises(Rejected, match="not available"):
                await daemon.submit(GROUP.replace("num_nodes: 2", "num_nodes: 3"))

    world.play(story())


# --- a command that hangs --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Trouble.LOST, Trouble.HANGS])
def test_a_submission_that_hangs_keeps_no_news_of_others_back_and_happens_once(
    world: SlurmWorld, trouble: Trouble
) -> None:
    world.transport.behave = lambda job: Behaviour(20)

    async def story() -> None:
        async with world.daemon() as daemon:
            first = await daemon.submit(script(), "script")
            await daemon.until(first, State.RUNNING)
            world.transport.fail("sbatch", trouble, 1)
            second = await daemon.submit(script(), "script")
            await daemon.until(first, State.COMPLETED, seconds=40)
            third = await daemon.submit(script(), "script")
            await daemon.until(third, State.COMPLETED, seconds=200)
            await daemon.until(second, State.COMPLETED, seconds=200)
        assert len(world.slurm.starts) == 3

    world.play(story())


@pytest.mark.parametrize("command", ["squeue", "sacct", "scancel"])
def test_a_question_that_hangs_ends_at_its_time_out(world: SlurmWorld, command: str) -> None:
    world.transport.behave = lambda job: Behaviour(20)

    async def story() -> None:
        async with world.daemon() as daemon:
            await daemon.until(await daemon.submit(script(), "script"), State.RUNNING)
            world.transport.fail(command, Trouble.HANGS, 1)
            second = await daemon.submit(script(), "script")
            await daemon.until(second, State.COMPLETED, seconds=200)
        assert len(world.slurm.starts) == 2

    world.play(story())


# --- large arrays taken back -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("then", ["stays", "restarts", "dies"])
def test_nothing_of_a_cancelled_array_starts_after_the_answer(world: SlurmWorld, then: str) -> None:
    world.transport.behave = lambda job: Behaviour(15)

    async def story() -> None:
        async with world.daemon() as daemon:
            array = await daemon.submit(script("--array=0-449"), "script")
            await asyncio.sleep(60)
            # Some have just started, and the next will when they end.
            while world.slurm.starts[-1][0] < world.now() - 1:
                await asyncio.sleep(0.1)
            await asyncio.sleep(10)
            done = await daemon.controller.orders.cancel(CancelRequest(by="ada"))
            answered, daemon.killed = world.now(), then == "dies"
            assert not done.errors
            await asyncio.sleep(600 if then == "stays" else 0.3)
        async with world.daemon() as daemon:
            await daemon.until(array, State.CANCELLED)
            ended = Counter(job.state for job in await daemon.elements(array))
        assert set(ended) <= {State.COMPLETED, State.CANCELLED}, ended
        late = [name for at, name in world.slurm.starts if at > answered]
        assert not late, f"{len(late)} elements started after the answer"
        assert all(job.over for job in world.slurm.jobs.values())

    world.play(story())


# --- submitted later -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("waits", ["--hold", "--dependency=afternotok:1", "--begin=now+1hour", "--array=1-3"])
def test_what_slurm_would_refuse_later_is_refused_at_the_submission(world: SlurmWorld, waits: str) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            await daemon.submit(script(), "script")
            for wrong in ("--mem=9T", "--partition=moon"):
                with pytest.raises(Rejected, match="Batch job submission failed"):
                    await daemon.submit(script(waits, wrong), "script")
            assert await daemon.submit(script(waits), "script") < 5

    world.play(story())


def test_a_job_that_waits_for_a_slot_is_tried_and_answered_at_once(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: STUBBORN

    async def story() -> None:
        async with world.daemon(max_running=1) as daemon:
            await daemon.until(await daemon.submit(script(), "script"), State.RUNNING)
            with pytest.raises(Rejected, match="Invalid partition"):
                await daemon.submit(script("--partition=moon"), "script")
            asked = world.now()
            await daemon.submit(script(), "script")
            assert world.now() - asked < 3

    world.play(story())


def test_jobs_that_ask_for_the_same_are_tried_once(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            for number in range(5):
                await daemon.submit(script("--hold") + f"step {number}\n", "script")
            assert count_trials(world) == 1
            await daemon.submit(script("--hold", "-c2"), "script")
            assert count_trials(world) == 2
            await asyncio.sleep(61)
            await daemon.submit(script("--hold"), "script")
            assert count_trials(world) == 3

    world.play(story())


def count_trials(world: SlurmWorld) -> int:
    """How many trials reached the login node."""
    return sum("--test-only" in words for words in world.transport.commands)
