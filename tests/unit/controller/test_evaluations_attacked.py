"""Evaluations where the world does not keep still: a daemon that is away, checkpoints that go, many at once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

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
from tests.unit.controller.fakes import Bench, end

from overspan.adapters.checkpoint_sources import WatchedFolder
from overspan.bridge.model.checkpoints.listings import FolderListing

HOURS = 4 * 3600.0


def end_evaluation(bench: Bench, cluster: TrainingCluster, number: int) -> None:
    """End the evaluation that was launched as that one."""
    job = [job for job in cluster.launched if job.spec.evaluation is not None][number]
    cluster.tell(f"{job.id}.{job.launch}", *end(bench.repository.jobs[job.id].job, bench.clock.now))


def test_what_was_deleted_while_the_daemon_was_away_is_not_waited_for() -> None:
    """One that was owed already is tried, and says itself that it found nothing; one that nobody saw never was."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        cluster.kept = {"step_1"}
        cluster.save(1)
        cluster.save(2)
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_1"]
        await bench.kill()
        cluster.save(3)
        cluster.checkpoints.clear()
        cluster.save(4)
        await asyncio.sleep(HOURS)
        await bench.start()
        end_evaluation(bench, cluster, 0)
        await pass_time(bench, cluster, 20)
        assert cluster.evaluated() == ["step_1", "step_2", "step_4"]
        end_training(bench, cluster)
        await pass_time(bench, cluster, 40)
        watch = await describe(bench)
        assert watch["closed"] and {each["state"] for each in watch["evaluations"]} == {"COMPLETED"}

    play(scene)


@pytest.mark.parametrize(("again", "count"), [("never", 1), ("on_change", 2)])
def test_one_that_is_replaced_while_it_is_evaluated(again: str, count: int) -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(**({"again": again} if again != "never" else {})))
        cluster.kept = {"step_1"}
        cluster.save(1)
        await pass_time(bench, cluster, 5)
        cluster.save(1, size=2)
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_1"], "there is room for one"
        await bench.kill()
        await bench.start()
        await pass_time(bench, cluster, 5)
        cluster.kept.clear()
        end_evaluation(bench, cluster, 0)
        await pass_time(bench, cluster, 20)
        assert cluster.evaluated() == ["step_1"] * count
        assert [each["state"] for each in (await describe(bench))["evaluations"]] == ["COMPLETED"] * count

    play(scene)


def test_ten_thousand_at_once_wait_for_their_turn() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(max_parallel=2))
        for step in range(10_000):
            cluster.save(step)
        cluster.kept = set(cluster.checkpoints)
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_0", "step_1"]
        assert len(bench.repository.evaluation_rows) == 10_000
        end_evaluation(bench, cluster, 0)
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_0", "step_1", "step_2"]

    play(scene)


def test_what_waits_when_a_score_ends_the_job_is_evaluated_all_the_same() -> None:
    """The job is done and not cancelled."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group('stop_when: {evaluation: quality, score: ">= 1"}'))
        for step in (1, 2, 3):
            cluster.save(step)
        cluster.kept = {"step_2"}
        await pass_time(bench, cluster, 10)
        orders = [order for order in cluster.orders if order.handle == "1.0"]
        assert [getattr(order.event, "done", "") for order in orders] == ["ScoreReached"]
        cluster.tell("1.0", orders[0].event)
        end_training(bench, cluster)
        await pass_time(bench, cluster, 5)
        assert bench.repository.jobs[1].job.state.value == "COMPLETED"
        assert cluster.evaluated() == ["step_1", "step_2"]
        end_evaluation(bench, cluster, 1)
        await pass_time(bench, cluster, 40)
        assert cluster.evaluated() == ["step_1", "step_2", "step_3"]
        assert (await describe(bench))["closed"]
        assert len([order for order in cluster.orders if order.handle == "1.0"]) == 1

    play(scene)


def test_a_source_that_hangs_is_named_and_asked_again() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        await pass_time(bench, cluster, 1)
        answer = cluster.list_checkpoints

        async def hang(folders: Sequence[WatchedFolder]) -> list[FolderListing]:
            await asyncio.Event().wait()
            return []

        cluster.list_checkpoints = hang  # type: ignore[method-assign]
        cluster.save(1)
        await pass_time(bench, cluster, 80)
        assert (await describe(bench))["note"] == "no answer within 60 s"
        cluster.list_checkpoints = answer  # type: ignore[method-assign]
        await pass_time(bench, cluster, 70)
        assert cluster.evaluated() == ["step_1"] and not (await describe(bench))["note"]

    play(scene)
