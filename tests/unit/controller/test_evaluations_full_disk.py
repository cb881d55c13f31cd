"""Evaluations while the store cannot be written for a moment: what was seen and what follows from it is made up for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.controller.evaluation_scenes import (
    TrainingCluster,
    describe,
    end_training,
    pass_time,
    play,
    submit,
    write_group,
)
from tests.unit.controller.fakes import Bench

from overspan.adapters.contract import Accepted, Launch, Refusal
from overspan.bridge.config.settings import Settings
from overspan.bridge.model.errors import StoreFailed
from overspan.bridge.store.evaluation_records import StoredEvaluation

RETRIED = 20
"""Seconds in which everything is tried again."""


async def wait_for(bench: Bench, cluster: TrainingCluster, fact: Callable[[], bool]) -> None:
    """Let steps of the daemon go by until a fact is true."""
    for _ in range(10_000):
        if fact():
            return
        await asyncio.sleep(0)
        cluster.go_on(bench.clock.now)
    raise AssertionError("the fact did not come true")


def add_far(bench: Bench) -> TrainingCluster:
    """A second cluster with a folder of its own."""
    far = TrainingCluster()
    far.name = "far"
    bench.others["far"] = far
    clusters = {"local": {"kind": "local", "root": "/near"}, "far": {"kind": "local", "root": "/far"}}
    bench.settings = Settings.model_validate({"clusters": clusters, "default_cluster": "local"})
    return far


@pytest.mark.parametrize("dies", [False, True])
def test_a_job_that_goes_to_another_cluster_is_watched_there(dies: bool) -> None:
    """The checkpoints are where the job is, whatever the store says of the watch."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        far = bench.others["far"]
        assert isinstance(far, TrainingCluster)
        cluster.refusals.append(Refusal("", "the partition is down"))
        refuse, gate = cluster.submit, asyncio.Event()

        async def refuse_late(launches: Sequence[Launch]) -> list[Accepted | Refusal]:
            await gate.wait()
            return await refuse(launches)

        cluster.submit = refuse_late  # type: ignore[method-assign]
        await submit(bench, write_group("cluster: [local, far]"))
        await wait_for(bench, far, lambda: bool(bench.controller.checkpoints.watches))
        change = bench.repository.evaluations.change_watch

        async def fail(changed: Any) -> None:
            raise StoreFailed("the disk is full")

        bench.repository.evaluations.change_watch = fail  # type: ignore[method-assign]
        gate.set()
        await pass_time(bench, far, 10)
        assert bench.job().state.value == "RUNNING" and far.launched
        far.save(1)
        cluster.save(7)
        if not dies:
            await pass_time(bench, far, RETRIED)
            assert (far.evaluated(), cluster.evaluated()) == (["step_1"], [])
        bench.repository.evaluations.change_watch = change  # type: ignore[method-assign]
        if dies:
            await bench.kill()
            await bench.start()
        await pass_time(bench, far, RETRIED)
        await pass_time(bench, cluster, 5)
        assert [*far.evaluated(), *cluster.evaluated()] == ["step_1"]
        assert bench.repository.watch_rows[1].facts.cluster == "far"

    play_beside(scene)


def play_beside(scene: Any) -> None:
    """Play with a second cluster."""

    async def prepared(bench: Bench, cluster: TrainingCluster) -> None:
        await bench.controller.close()
        add_far(bench)
        await bench.start()
        await scene(bench, cluster)

    play(prepared)


def test_a_watch_that_could_not_be_stored_is_stored_later() -> None:
    """Also where nothing changes of the job any more."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        keep = bench.repository.evaluations.keep_watch

        async def fail(new: Any) -> int:
            raise StoreFailed("the disk is full")

        bench.repository.evaluations.keep_watch = fail  # type: ignore[method-assign]
        await submit(bench, write_group())
        await pass_time(bench, cluster, RETRIED)
        bench.repository.evaluations.keep_watch = keep  # type: ignore[method-assign]
        cluster.save(1)
        await pass_time(bench, cluster, RETRIED)
        assert cluster.evaluated() == ["step_1"]

    play(scene)


def test_the_last_checkpoint_is_kept_until_it_is_stored() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(select={"every": 10}))
        cluster.save(13)
        cluster.save(10)
        await pass_time(bench, cluster, 5)
        cluster.save(17)
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_10"]
        end_training(bench, cluster)
        await pass_time(bench, cluster, 5)
        bench.repository.broken = True
        await pass_time(bench, cluster, 40)
        bench.repository.broken = False
        await pass_time(bench, cluster, 40)
        assert cluster.evaluated() == ["step_10", "step_17"]
        assert (await describe(bench))["closed"]

    play(scene)


def test_an_evaluation_that_is_stored_and_told_as_a_failure_runs_once() -> None:
    """As where the answer of a write is lost: it is there when it is written again."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        keep = bench.repository.evaluations.keep
        told = list[int]()

        async def lose(new: StoredEvaluation) -> int:
            number = await keep(new)
            if not told:
                told.append(number)
                raise StoreFailed("the disk is full")
            return number

        bench.repository.evaluations.keep = lose  # type: ignore[method-assign]
        await submit(bench, write_group())
        cluster.save(1)
        await pass_time(bench, cluster, RETRIED)
        assert told and cluster.evaluated() == ["step_1"]
        assert [each["score"] for each in (await describe(bench))["evaluations"]] == [1.0]

    play(scene)


@pytest.mark.parametrize("dies", [False, True])
def test_a_score_that_ends_the_job_does_so_when_it_can_be_written(dies: bool) -> None:
    """The result is stored and what follows from it is not; there is no other result to come."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group('stop_when: {evaluation: quality, score: ">= 1"}'))
        await pass_time(bench, cluster, 2)
        change, apply = bench.repository.evaluations.change, bench.repository.apply

        async def fail(*args: Any) -> Any:
            raise StoreFailed("the disk is full")

        async def keep_and_fail(changed: StoredEvaluation) -> None:
            await change(changed)
            if changed.over:
                bench.repository.apply = fail  # type: ignore[assignment,method-assign]

        bench.repository.evaluations.change = keep_and_fail  # type: ignore[method-assign]
        cluster.save(1)
        await pass_time(bench, cluster, RETRIED)
        assert bench.job().ending is None
        bench.repository.evaluations.change = change  # type: ignore[method-assign]
        bench.repository.apply = apply  # type: ignore[method-assign]
        if dies:
            await bench.kill()
            await bench.start()
        await pass_time(bench, cluster, RETRIED)
        ends = [order for order in cluster.orders if order.handle == "1.0"]
        assert ends and getattr(ends[0].event, "done", "") == "ScoreReached"

    play(scene)


@pytest.mark.parametrize("seed", range(10))
def test_a_disk_that_is_full_again_and_again_loses_and_doubles_nothing(seed: int) -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(max_parallel=2))
        await pass_time(bench, cluster, 1)
        for step in range(1, 9):
            cluster.save(step)
            for turn in range(seed * 7 + step * 5):
                await asyncio.sleep(0)
                bench.repository.broken = (turn // (3 + seed)) % 2 == 1
                cluster.go_on(bench.clock.now)
            await asyncio.sleep((seed + step) % 3)
        bench.repository.broken = False
        await pass_time(bench, cluster, 60)
        assert sorted(cluster.evaluated()) == [f"step_{step}" for step in range(1, 9)]
        assert sorted(each["score"] for each in (await describe(bench))["evaluations"]) == list(range(1, 9))

    play(scene)
