"""A local cluster keeps an array's throttle itself, whoever asks, ends or comes back."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from tests.contract.conformance import Follower, handle_of
from tests.system.local.stories import make_launches, open_on, play

from overspan.adapters.abilities import Throttle
from overspan.adapters.contract import Order
from overspan.adapters.local import LocalCluster
from overspan.bridge.model.events import Cancel, Event, Hold, Release, SetPriority
from overspan.bridge.model.job import Element, Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State

ARRAY = 100
WAITS = "while [ ! -e go-$SLURM_ARRAY_TASK_ID ]; do sleep 0.02; done"


def element(root: Path, index: int) -> Job:
    spec = JobSpec("sweep", (TaskSpec("batch", run=WAITS),), origin=Origin(directory=str(root.parent)))
    return replace(new_job(ARRAY + 1 + index, spec, 1.0), element=Element(ARRAY, index), priority=5)


def handle(index: int) -> str:
    return f"{ARRAY + 1 + index}.0"


async def submit(cluster: LocalCluster, root: Path, count: int, throttle: int | None) -> Follower:
    jobs = [element(root, index) for index in range(count)]
    answers = await cluster.submit(make_launches(*jobs, throttle=throttle))
    return Follower(cluster, {handle_of(answer): job for answer, job in zip(answers, jobs, strict=True)})


def states(follower: Follower) -> str:
    """A letter for each element: Pending, Running, or Completed or Cancelled."""
    return "".join(follower.jobs[handle(index)].state.value[0] for index in range(len(follower.jobs)))


def reasons(follower: Follower) -> list[str]:
    """Why those wait that do not run."""
    return [job.reason for job in follower.jobs.values() if job.state is State.PENDING]


def limit_of(cluster: LocalCluster) -> int | None:
    """The throttle in force."""
    return cluster._dispatch.queue._arrays[ARRAY].limit


async def give(cluster: LocalCluster, index: int, event: Event) -> None:
    assert await cluster.order([Order(f"order-{index}-{event.at}", handle(index), event)]) == [None]


def test_the_throttle_is_no_reason_while_the_machine_is_too_small_for_it(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, root, 7, 4)
        await follower.until(lambda: states(follower) == "RRPPPPP", "two run")
        # As Slurm says it: the first one lacks resources, all others stand behind it.
        await follower.until(lambda: reasons(follower) == ["Resources", *["Priority"] * 4], "why they wait")
        await cluster.set_throttle(ARRAY, 2)
        await follower.until(lambda: set(reasons(follower)) == {"JobArrayTaskLimit"}, "the limit")
        for index in range(7):
            (root.parent / f"go-{index}").touch()
        await follower.until(lambda: all(job.over for job in follower.jobs.values()), "all ran")

    play(open_on(root, cpus=2), story)


def test_elements_beyond_the_throttle_wait_and_start_one_after_the_other(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        assert isinstance(cluster, Throttle)
        follower = await submit(cluster, root, 5, 2)
        await follower.until(lambda: states(follower) == "RRPPP", "two run")
        await follower.step(0.0)
        assert {follower.jobs[handle(index)].reason for index in (2, 3, 4)} == {"JobArrayTaskLimit"}
        await give(cluster, 2, Hold(time.time()))
        await give(cluster, 4, SetPriority(time.time(), 9))
        (root.parent / "go-0").touch()
        await follower.until(lambda: states(follower) == "CRPPR", "the most urgent one that is not held")
        await give(cluster, 3, Cancel(time.time()))
        (root.parent / "go-4").touch()
        await follower.until(lambda: states(follower) == "CRPCC", "nobody else may start")
        await give(cluster, 2, Release(time.time()))
        await follower.until(lambda: states(follower) == "CRRCC", "the released one")
        for index in (1, 2):
            (root.parent / f"go-{index}").touch()
        await follower.until(lambda: all(job.over for job in follower.jobs.values()), "all ran")

    play(open_on(root, cpus=16), story)


def test_the_throttle_is_kept_for_the_next_one_who_opens_the_cluster(root: Path) -> None:
    async def before(cluster: LocalCluster) -> None:
        follower = await submit(cluster, root, 6, 3)
        await follower.until(lambda: states(follower) == "RRRPPP", "three run")
        await cluster.set_throttle(ARRAY, 2)

    async def between(cluster: LocalCluster) -> None:
        follower = Follower(cluster, {handle(index): element(root, index) for index in range(6)})
        (root.parent / "go-0").touch()
        await follower.until(lambda: states(follower) == "CRRPPP", "one has ended")
        await follower.until(lambda: len(cluster._dispatch.bookings) == 2, "it has given back what it held")
        assert states(follower) == "CRRPPP" and limit_of(cluster) == 2

    async def after(cluster: LocalCluster) -> None:
        (root.parent / "go-1").touch()
        follower = Follower(cluster, {handle(index): element(root, index) for index in range(6)})
        await follower.until(lambda: states(follower) == "CCRPPP", "another has ended")
        await follower.until(lambda: len(cluster._dispatch.bookings) == 1, "it has given back what it held")
        assert states(follower) == "CCRPPP" and limit_of(cluster) == 1
        await cluster.set_throttle(ARRAY, None)
        await follower.until(lambda: states(follower) == "CCRRRR", "all may run")
        for index in range(2, 6):
            (root.parent / f"go-{index}").touch()
        await follower.until(lambda: all(job.state is State.COMPLETED for job in follower.jobs.values()), "the end")

    jobs = [element(root, index) for index in range(6)]
    for story, throttle in ((before, 3), (between, 2), (after, 1)):
        play(open_on(root, make_launches(*jobs, throttle=throttle) if throttle < 3 else (), cpus=16), story)
