"""Ordinary days of a cluster, told by the daemon over the fake Slurm: answers that are lost, late or torn, ends that
come while nobody looks, holds, limits, signals, dependencies, throttles.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.slurm_controller import Site
from tests.fakes.slurm_jobs import Behaviour, Request
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import Daemon, SlurmWorld

from overspan.bridge.controller.orders.requests import CancelRequest, Filters
from overspan.bridge.controller.views.history import list_history
from overspan.bridge.controller.views.listing import Selection, list_queue
from overspan.bridge.listings.rows import COLUMNS
from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.states import State

SCRIPT = "#!/bin/bash\n"
GROUP = "name: g\nexecution: parallel\n---\nname: a\nrun: x\n---\nname: b\nrun: x\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


async def order(daemon: Daemon, number: int, make: Callable[[float], Event]) -> None:
    """Give an order about a job."""
    await daemon.controller.orders.give(str(number), lambda at, task: make(at))


def with_options(*options: str) -> str:
    """A batch script."""
    return SCRIPT + "".join(f"#SBATCH {option}\n" for option in options) + "train\n"


# --- answers that are lost, late or torn -----------------------------------------------------------------------------


@pytest.mark.parametrize("trouble", [Trouble.TIMED_OUT, Trouble.LOST, Trouble.HANGS, Trouble.REFUSED])
@pytest.mark.parametrize("killed", [False, True])
def test_a_submission_whose_answer_is_lost_happens_once(world: SlurmWorld, trouble: Trouble, killed: bool) -> None:
    async def story() -> None:
        world.transport.fail("sbatch", trouble, 1)
        async with world.daemon() as daemon:
            number, daemon.killed = await daemon.submit(SCRIPT, "script"), killed
        async with world.daemon() as daemon:
            await daemon.until(number, State.COMPLETED)
        assert len(world.slurm.starts) == 1

    world.play(story())


@pytest.mark.parametrize(("text", "kind"), [(SCRIPT, "script"), (GROUP, "job_file")])
def test_a_submission_in_doubt_holds_no_other_back(world: SlurmWorld, text: str, kind: str) -> None:
    world.transport.behave = lambda job: Behaviour(600)
    world.transport.programs = lambda task: Behaviour(600)

    async def story() -> None:
        async with world.daemon() as daemon:
            world.transport.fail("sbatch", Trouble.DROPPED, 1)
            in_doubt = await daemon.submit(text, kind)
            await asyncio.sleep(1)
            assert (await daemon.job(in_doubt)).state is State.PENDING
            other = await daemon.submit(SCRIPT, "script")
            await daemon.until(other, State.RUNNING, seconds=6)
            assert (await daemon.job(in_doubt)).state is State.PENDING
            (told,) = daemon.controller.problems
            assert told.startswith(f"fake: submission unknown: Slurm has not said whether it has job {in_doubt} (")
            await daemon.until(in_doubt, State.RUNNING, seconds=30)
            assert daemon.controller.problems == []
        assert len(world.slurm.starts) == 2

    world.play(story())


@pytest.mark.parametrize("trouble", [Trouble.REFUSED, Trouble.UNREACHABLE, Trouble.HANGS])
def test_what_ends_while_the_cluster_does_not_answer_is_known_when_it_does(world: SlurmWorld, trouble: Trouble) -> None:
    world.transport.behave = lambda job: Behaviour(30, 3)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
            faults = [world.transport.fail(name, trouble) for name in ("squeue", "sacct")]
            await asyncio.sleep(200)
            assert (await daemon.job(number)).state is State.RUNNING
            for fault in faults:
                world.transport.faults.remove(fault)
            job = await daemon.until(number, State.FAILED, seconds=200)
            assert job.exit_code == 3

    world.play(story())


def test_a_torn_answer_of_squeue_loses_no_job(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(100, 3)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
            world.transport.fail("squeue", Trouble.GARBAGE)
            await asyncio.sleep(60)
            assert (await daemon.job(number)).state is State.RUNNING
            assert (await daemon.until(number, State.FAILED)).exit_code == 3
        assert len(world.slurm.starts) == 1

    world.play(story())


def test_what_a_torn_answer_does_not_show_is_not_submitted_again(world: SlurmWorld) -> None:
    world.slurm.site = Site(accounting=False)
    world.transport.behave = lambda job: Behaviour(400)
    world.transport.fail("sbatch", Trouble.LOST, times=1)
    torn = world.transport.fail("squeue", Trouble.GARBAGE)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await asyncio.sleep(300)
            torn.times = 0
            await daemon.until(number, State.COMPLETED)
        assert len(world.slurm.jobs) == 1

    world.play(story())


def test_what_slurm_has_forgotten_is_known_from_the_accounting(world: SlurmWorld) -> None:
    world.slurm.site = Site(min_job_age=60, accounting_lag=20)
    world.transport.behave = lambda job: Behaviour(30, 3)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
        await asyncio.sleep(600)
        async with world.daemon() as daemon:
            assert (await daemon.until(number, State.FAILED)).exit_code == 3
        assert world.slurm.jobs == {}

    world.play(story())


# --- ends ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("on_term", "seconds"), [(2.0, 2), (None, 30)])
def test_a_cancelled_job_ends_by_term_or_after_its_grace(
    world: SlurmWorld, on_term: float | None, seconds: float
) -> None:
    world.transport.behave = lambda job: Behaviour(None, on_term=on_term)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
            began = world.now()
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            await daemon.until(number, State.CANCELLED)
            assert seconds <= world.slurm.jobs[1].end - began <= seconds + 5

    world.play(story())


def test_a_time_limit_ends_a_job_and_a_new_one_counts(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(None)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(with_options("--time=1"), "script")
            await daemon.until(number, State.RUNNING)
            await order(daemon, number, lambda at: events.SetTime(at, 180))
            await asyncio.sleep(120)
            assert (await daemon.job(number)).state is State.RUNNING
            job = await daemon.until(number, State.TIMEOUT)
            assert job.started_at and job.ended_at and job.ended_at - job.started_at == 180

    world.play(story())


def test_a_signal_reaches_a_job_that_runs_once(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(60)

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.until(number, State.RUNNING)
            await daemon.controller.orders.cancel(CancelRequest((str(number),), signal="USR1", by="ada"))
            await daemon.until(number, State.COMPLETED)
        assert [signal for _, signal in world.slurm.jobs[1].signals] == [10]

    world.play(story())


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_a_held_job_starts_when_it_is_released(world: SlurmWorld) -> None:
    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(with_options("--hold"), "script")
            await asyncio.sleep(120)
            assert (await daemon.job(number)).reason == "JobHeldUser" and not world.slurm.starts
            await order(daemon, number, lambda at: events.Release(at, "ada"))
            await daemon.until(number, State.COMPLETED)
        assert len(world.slurm.starts) == 1

    world.play(story())


@pytest.mark.parametrize("code", [0, 1])
def test_a_job_waits_for_another_that_has_to_succeed(world: SlurmWorld, code: int) -> None:
    world.transport.behave = lambda job: Behaviour(60, code)

    async def story() -> None:
        async with world.daemon() as daemon:
            first = await daemon.submit(SCRIPT, "script")
            await daemon.until(first, State.RUNNING)
            second = await daemon.submit(with_options(f"--dependency=afterok:{first}"), "script")
            await asyncio.sleep(30)
            assert (await daemon.job(second)).reason == "Dependency"
            await asyncio.sleep(300)
            job = await daemon.job(second)
            assert (job.started_at is not None) is (code == 0)
            assert code == 0 or job.reason == "DependencyNeverSatisfied"

    world.play(story())


def test_an_array_keeps_to_its_throttle(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(20)
    most: list[int] = []

    async def story() -> None:
        async with world.daemon() as daemon:
            array = await daemon.submit(with_options("--array=0-8%3"), "script")
            while (await daemon.job(array)).state is not State.COMPLETED:
                world.slurm.catch_up(world.now())
                most.append(sum(job.state == "RUNNING" for job in world.slurm.jobs.values()))
                await asyncio.sleep(1)
        assert max(most) == 3 and len(world.slurm.starts) == 9

    world.play(story())


def test_a_job_that_waits_for_room_says_so_and_starts_when_there_is_some(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(90)

    async def story() -> None:
        async with world.daemon() as daemon:
            numbers = [await daemon.submit(with_options("-N3", "-c4"), "script") for _ in range(3)]
            await daemon.until(numbers[0], State.RUNNING)
            await asyncio.sleep(30)
            assert [(await daemon.job(number)).reason for number in numbers[1:]] == ["Resources", "Priority"]
            for number in numbers:
                await daemon.until(number, State.COMPLETED)
        assert [name for _, name in world.slurm.starts] == ["1", "2", "3"]

    world.play(story())


def test_an_epilog_that_takes_long_belongs_to_the_nodes_and_not_to_the_job(world: SlurmWorld) -> None:
    world.slurm.site = Site(epilog=40)
    world.transport.behave = lambda job: Behaviour(10)

    async def story() -> None:
        async with world.daemon() as daemon:
            first = await daemon.submit(with_options("-N3", "-c4"), "script")
            second = await daemon.submit(with_options("-N3", "-c4"), "script")
            job = await daemon.until(first, State.COMPLETED)
            assert job.started_at and job.ended_at and job.ended_at - job.started_at == 10
            later = await daemon.until(second, State.COMPLETED)
            assert later.started_at and later.started_at - job.ended_at >= 40

    world.play(story())


def test_many_jobs_cost_no_more_questions_than_one(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(600)
    counts = []

    async def story() -> None:
        async with world.daemon() as daemon:
            for more in (1, 11):
                for _ in range(more):
                    await daemon.submit(SCRIPT, "script")
                await asyncio.sleep(120)
                before = len(world.transport.asked)
                await asyncio.sleep(120)
                counts.append(len(world.transport.asked) - before)
        assert counts[0] == counts[1] <= 24, counts

    world.play(story())


# --- where it writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("shared", [False, True])
def test_what_is_shown_of_a_job_names_the_files_that_it_writes(world: SlurmWorld, shared: bool) -> None:
    world.transport.behave = lambda job: Behaviour(30, output="written")

    async def story() -> None:
        # The fake's numbers are not ours.
        world.slurm.submit([Request(hold=True)])
        async with world.daemon(shared=shared) as daemon:
            number = await daemon.submit(with_options("-o out.%j"), "script")
            await daemon.until(number, State.RUNNING)
            shown = await list_rows(daemon, number)
        async with world.daemon(shared=shared) as daemon:
            assert await list_rows(daemon, number) == shown
            await daemon.until(number, State.COMPLETED)
            await asyncio.sleep(2000)
            assert await list_rows(daemon, number) == shown
        folder, output, error = shown
        if shared:
            assert (folder, output, error) == ("/home/ada", "/home/ada/out.2", "/home/ada/out.2")
        else:
            assert Path(output).read_text() == "written" and Path(folder).is_dir() and error == output

    world.play(story())


def test_the_partition_is_slurms_own_once_that_is_known(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(300)

    async def story() -> None:
        async with world.daemon() as daemon:
            runs = await daemon.submit(with_options("-N3", "-c4"), "script")
            await daemon.until(runs, State.RUNNING)
            waits = await daemon.submit(with_options("-N3", "-c4"), "script")
            named = await daemon.submit(with_options("-p short"), "script")
            await asyncio.sleep(30)
            assert (await daemon.job(waits)).state is State.PENDING
            assert list_queued(daemon, "main") == {runs: "main", waits: "main"}
            assert list_queued(daemon, "short") == {named: "short"} and list_queued(daemon, "fake") == {}
            await daemon.controller.orders.cancel(CancelRequest(filters=Filters(partitions=frozenset({"main"}))))
            await daemon.until(waits, State.CANCELLED)
        async with world.daemon() as daemon:
            # The store has it too.
            assert (await daemon.job(runs)).partition == "main"

    world.play(story())


def list_queued(daemon: Daemon, partition: str) -> dict[int, str]:
    """The partitions of the queue's jobs in one, by id."""
    selection = Selection(partitions=frozenset({partition}))
    rows = list_queue(daemon.controller.recorder.registry, selection, daemon.world.now())
    found = [dict(zip(COLUMNS, json.loads(row), strict=True)) for row in rows]
    return {row["id"]: row["partition"] for row in found}


async def list_rows(daemon: Daemon, number: int) -> tuple[str, str, str]:
    """Folder, output and error of a job, as listings have them."""
    selection = Selection(ids=(str(number),))
    pages = list_history(daemon.controller.recorder.registry, daemon.world.store, selection)
    (found,) = [row async for page in pages for row in page]
    row = dict(zip(COLUMNS, json.loads(found), strict=True))
    shown = await daemon.controller.job(str(number))
    assert (shown["work_dir"], shown["tasks"][0]["stdout"]) == (row["work_dir"], row["stdout"])
    return row["work_dir"], row["stdout"], row["stderr"]
