"""A worker is given no job that may end after it, whenever what ends it comes to be known."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.pool_scenes import JOB, LimitedCluster, PoolScene, ScenePlayer, make_player

from overspan.adapters.pool.requests import find_job_seconds
from overspan.bridge.controller.features.pools.entries import sort_waiting
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Start, TaskSpec

PIPELINE = """\
name: g
pool: p
execution: parallel
primary_tasks: [a, b]
---
{name: server, resources: {cpus: 1}, run: 'true'}
---
{name: a, resources: {cpus: 1}, needs: ['started:server'], time: 300s, grace_period: 0, run: 'true'}
---
{name: b, resources: {cpus: 1}, needs: ['ok:a'], time: 300s, grace_period: 0, run: 'true'}
"""


@pytest.fixture
def play_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ScenePlayer:
    return make_player(tmp_path, monkeypatch)


def test_nothing_is_given_before_the_cluster_has_said_when_the_worker_ends(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.meet()
        assert not await pool.gives(60) and not await pool.gives(None)
        pool.cluster.end = pool.bench.clock.now + 1000
        await pool.pass_time(3)
        assert await pool.gives(900) and not await pool.gives(1000) and await pool.gives(None)

    play_pool(scene)


def test_an_unknown_start_is_taken_for_the_earliest(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = math.inf
        await pool.apply("time: 1000s\n")
        # Submitted 600 seconds ago, and in contact before its start was seen.
        pool.bench.clock.now += 600
        await pool.meet()
        assert await pool.gives(400) and not await pool.gives(401)
        await pool.see_start(seconds_ago=100)
        assert await pool.gives(890) and not await pool.gives(900)

    play_pool(scene)


def test_a_cluster_that_does_not_answer_is_asked_until_it_does(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.silent = True
        await pool.apply()
        await pool.see_start()
        await pool.meet()
        for _ in range(3):
            await pool.pass_time(3)
            assert not await pool.gives(None)
        assert pool.cluster.questions > 2
        (worker,) = pool.bench.controller.pools.describe("p")[0]["workers"]
        assert worker["reason"] == "EndUnknown"
        pool.cluster.silent, pool.cluster.end = False, pool.bench.clock.now + 500
        await pool.pass_time(3)
        assert await pool.gives(400) and not await pool.gives(500)
        asked = pool.cluster.questions
        await pool.pass_time(60)
        assert pool.cluster.questions == asked
        (worker,) = pool.bench.controller.pools.describe("p")[0]["workers"]
        assert worker["reason"] == ""

    play_pool(scene)


def test_a_worker_that_was_started_anew_has_another_end(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = math.inf
        await pool.apply()
        await pool.see_start()
        await pool.meet("a")
        assert await pool.gives(5000)
        # Requeued by its cluster, for one; and as somebody has made its limit shorter.
        pool.cluster.end = None
        await pool.meet("b")
        assert not await pool.gives(10)
        pool.cluster.end = pool.bench.clock.now + 100
        await pool.pass_time(3)
        assert await pool.gives(90) and not await pool.gives(100)

    play_pool(scene)


def test_a_cluster_without_limits_of_its_own_is_not_asked(play_pool: ScenePlayer) -> None:
    class Endless(LimitedCluster):
        def state(self) -> dict[str, Any]:
            return {}

    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.meet()
        assert await pool.gives(None) and await pool.gives(5000)

    play_pool(scene, Endless())


def _count_workers(pool: PoolScene) -> int:
    return len(pool.bench.controller.pools.describe("p")[0]["workers"])


def test_an_idle_worker_without_the_time_for_what_waits_is_replaced(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = pool.bench.clock.now + 500
        await pool.apply("time: 1000s\n")
        await pool.see_start(seconds_ago=500)
        await pool.meet()
        # A new worker would not have had the time left for this one after its start.
        await pool.send("time: 900s\n")
        await pool.pass_time(1)
        assert _count_workers(pool) == 1
        await pool.send("time: 700s\n")
        await pool.pass_time(1)
        assert _count_workers(pool) == 2
        assert await pool.gives(400), "the old one takes what it has the time for"

    play_pool(scene)


def test_an_idle_worker_with_the_time_for_something_that_waits_stays_alone(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = pool.bench.clock.now + 500
        await pool.apply("time: 1000s\n")
        await pool.see_start(seconds_ago=500)
        await pool.meet()
        await pool.send("time: 100s\n")
        await pool.send("time: 700s\n")
        await pool.pass_time(1)
        # It holds the first.
        assert _count_workers(pool) == 1

    play_pool(scene)


def _needs(kind: NeedKind, task: str) -> tuple[Need, ...]:
    return (Need(task, kind),)


@pytest.mark.parametrize(
    ("tasks", "start", "seconds"),
    [
        (
            [TaskSpec("server", primary=False), TaskSpec("trainer", time=600), TaskSpec("judge", time=60)],
            Start.TOGETHER,
            660,
        ),
        ([TaskSpec("trainer", time=600), TaskSpec("judge")], Start.TOGETHER, 0),
        ([TaskSpec("one", time=60)], Start.TOGETHER, 90),
        ([TaskSpec("a", time=600), TaskSpec("b", time=300, needs=_needs(NeedKind.OK, "a"))], Start.TURNS, 630),
        (
            [
                TaskSpec("server", primary=False),
                TaskSpec("a", time=600, needs=_needs(NeedKind.READY, "server")),
                TaskSpec("b", time=300, needs=_needs(NeedKind.OK, "a")),
            ],
            Start.TOGETHER,
            990,
        ),
    ],
    ids=["server", "endless", "one", "stages", "pipeline"],
)
def test_a_group_that_waits_takes_as_long_as_its_launch(tasks: list[TaskSpec], start: Start, seconds: int) -> None:
    """Of tasks that take turns the stage's; of those that are launched together and follow each other, the sum."""
    adapter = SimpleNamespace(find_seconds=find_job_seconds)
    pool: Any = SimpleNamespace(name="p", facts=SimpleNamespace(size=SimpleNamespace(classes=())), adapter=adapter)
    waiting: Any = SimpleNamespace(job=new_job(1, JobSpec("j", tuple(tasks), start=start), 0.0), cluster="p")
    found = sort_waiting(pool, [waiting])
    assert found.counts == {("",): 1} and found.seconds == {"": seconds}


def test_an_idle_worker_without_the_time_for_a_pipeline_is_replaced(play_pool: ScenePlayer) -> None:
    """No task is longer than what is left of the worker's life, and both together are."""

    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = pool.bench.clock.now + 500
        await pool.apply("time: 1000s\n")
        await pool.see_start(seconds_ago=500)
        await pool.meet()
        await pool.send(text=PIPELINE)
        await pool.pass_time(1)
        assert _count_workers(pool) == 2

    play_pool(scene)


def test_an_idle_worker_of_an_earlier_version_is_replaced_for_a_group(play_pool: ScenePlayer) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = math.inf
        await pool.apply()
        await pool.see_start()
        await pool.meet(features=())
        assert _count_workers(pool) == 1
        group = await pool.send(text="name: g\n" + JOB + "num_nodes: 2\n")
        await pool.pass_time(1)
        assert pool.bench.job(group).reason == "WorkerVersion"
        assert pool.bench.controller.pools.describe("p")[0]["workers"][0]["reason"] == "WorkerVersion"
        assert _count_workers(pool) == 2

    play_pool(scene)
