"""Evaluations over a scripted source, on a clock that jumps: one for each checkpoint, whatever is killed."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from typing import Any

import pytest
from tests.unit.controller.evaluation_scenes import (
    WATCH,
    TrainingCluster,
    describe,
    end_training,
    pass_time,
    play,
    submit,
    write_group,
)
from tests.unit.controller.fakes import Bench, end

from overspan.bridge.model import events
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.store.evaluation_records import StoredEvaluation


def test_each_is_evaluated_once_and_no_more_at_once_than_may() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(max_parallel=2))
        for step in (3, 1, 2):
            cluster.save(step)
        cluster.save(4, complete=False)
        cluster.kept = {"step_1"}
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_1", "step_2", "step_3"]
        assert cluster.pinned == {"step_1"}
        cluster.kept = {"step_1", "step_4", "step_5"}
        cluster.save(4)
        cluster.save(5)
        await pass_time(bench, cluster, 10)
        assert cluster.evaluated() == ["step_1", "step_2", "step_3", "step_4"], "two at once"
        states = {each["checkpoint"]: each["state"] for each in (await describe(bench))["evaluations"]}
        assert states["step_5"] == "WAITING" and states["step_4"] == "RUNNING"

    play(scene)


def test_all_watches_are_listed_with_their_evaluations_counted() -> None:
    """Open and closed, newest first; each change of an evaluation is told to those who follow the queue."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        for step in (1, 2, 3):
            cluster.save(step)
        cluster.save(4, complete=False)
        cluster.kept = {"step_2"}
        await pass_time(bench, cluster, 5)
        (watch,) = await bench.controller.evaluations.sum_up()
        facts = {"name": "quality", "job": 1, "job_name": "train", "job_state": "RUNNING", "closed": False}
        counts = {"states": {"COMPLETED": 1, "RUNNING": 1, "WAITING": 1}, "best_score": 1.0, "incomplete_count": 1}
        assert {key: watch[key] for key in (*facts, *counts)} == {**facts, **counts}
        waiting = {each["checkpoint"]: each["state"] for each in (await describe(bench))["evaluations"]}
        assert waiting == {"step_1": "COMPLETED", "step_2": "RUNNING", "step_3": "WAITING"}
        assert await bench.controller.evaluations.sum_up("bob") == [watch], "the queue has its job"
        told = bench.controller.recorder.registry.changes.revision
        (made,) = await bench.controller.evaluations.run("1", "step_1", "quality")
        assert made["job"] is None, "there is no room"
        assert bench.controller.recorder.registry.changes.list_since(told) == [1]
        job = cluster.launched[-1]
        cluster.tell(f"{job.id}.0", *end(bench.repository.jobs[job.id].job, bench.clock.now, 3))
        end_training(bench, cluster)
        await pass_time(bench, cluster, 40)
        (watch,) = await bench.controller.evaluations.sum_up("me")
        assert watch["closed"] and watch["job_state"] == "COMPLETED"
        assert watch["states"] == {"COMPLETED": 3, "FAILED": 1} and watch["best_score"] == 3.0
        (failed,) = [each for each in (await describe(bench))["evaluations"] if each["state"] == "FAILED"]
        assert (failed["reason"], failed["cluster"]) == ("NonZeroExitCode", "local")
        await bench.kill()
        await bench.start()
        assert await bench.controller.evaluations.sum_up("me") == [watch]
        assert await bench.controller.evaluations.sum_up("bob") == [], "the queue has forgotten its job"

    play(scene)


def test_training_that_ends_while_a_new_daemon_reads_its_watches_is_known_to_be_over(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        await pass_time(bench, cluster, 1)
        await bench.kill()
        read_names = bench.repository.evaluations.list_names

        async def end_meanwhile(watch_id: int) -> list[tuple[str, str]]:
            end_training(bench, cluster)
            for _ in range(50):
                await asyncio.sleep(0)
            return await read_names(watch_id)

        monkeypatch.setattr(bench.repository.evaluations, "list_names", end_meanwhile)
        await bench.start()
        monkeypatch.undo()
        (watch,) = bench.controller.checkpoints.watches.values()
        await pass_time(bench, cluster, 1)
        assert watch.job.over and watch.over_at is not None

    play(scene)


@pytest.mark.parametrize(
    ("reads", "partial", "score"), [(3, False, 1.0), (9, False, None), (29, True, 1.0), (99, True, None)]
)
def test_a_result_whose_line_is_shown_late_is_found(reads: int, partial: bool, score: float | None) -> None:
    """A busy node shows the last lines of an output after the end; what is not there in the end is no result."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        cluster.late_reads, cluster.partial_logs = reads, partial
        cluster.save(1)
        await pass_time(bench, cluster, 1)
        (only,) = (await describe(bench))["evaluations"]
        assert (only["state"], only["score"]) == ("COMPLETING", None), "its end is told with its score"
        await pass_time(bench, cluster, 90 if partial else 15)
        (only,) = (await describe(bench))["evaluations"]
        assert (only["state"], only["score"]) == ("COMPLETED", score)

    play(scene)


def test_a_watch_that_is_opened_twice_at_once_is_one() -> None:
    """Each change of a job opens its watches until they are there; a busy store answers some of that late."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        asked, ask = list[Sequence[int]](), bench.repository.evaluations.find

        async def ask_slowly(watches: Sequence[int], live_only: bool = False) -> list[StoredEvaluation]:
            found = await ask(watches, live_only)
            if live_only:
                asked.append(watches)
                await asyncio.sleep(len(asked))
            return found

        bench.repository.evaluations.find = ask_slowly  # type: ignore[method-assign]
        await submit(bench, write_group())
        cluster.save(1)
        cluster.kept = {"step_1"}
        await pass_time(bench, cluster, 10)
        (only,) = (await describe(bench))["evaluations"]
        assert len(asked) > 1 and only["state"] == "RUNNING"
        cluster.kept = set()
        (launched,) = (job for job in cluster.launched if job.spec.evaluation is not None)
        done = events.NodeEnded(bench.clock.now, launched.spec.tasks[0].name, 0, 0, 0)
        cluster.tell(f"{launched.id}.{launched.launch}", done)
        await pass_time(bench, cluster, 10)
        (only,) = (await describe(bench))["evaluations"]
        assert (only["state"], only["score"]) == ("COMPLETED", 1.0)

    play(scene)


def test_each_element_of_an_array_has_its_own_watch() -> None:
    """In the folder that its index names; the array itself has none, whoever starts the daemon anew."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        array = await submit(bench, write_array("/c/%a"))
        cluster.save(1)
        await pass_time(bench, cluster, 5)
        await bench.kill()
        await bench.start()
        await pass_time(bench, cluster, 5)
        found = await bench.controller.evaluations.describe(str(array))
        assert [(each["element"], each["path"]) for each in found] == [("1_3", "/c/3"), ("1_7", "/c/7")]
        assert [[one["score"] for one in each["evaluations"]] for each in found] == [[1.0], [1.0]]
        assert sorted(cluster.evaluated()) == ["step_1", "step_1"]
        (only,) = await bench.controller.evaluations.describe("1_7")
        assert only["path"] == "/c/7"

    play(scene)


def test_elements_of_an_array_do_not_share_a_folder() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        with pytest.raises(InvalidRequest, match="folders of their own, and /c/%%a is one for all"):
            await submit(bench, write_array("/c/%%a"))

    play(scene)


def write_array(path: str) -> str:
    """A job file of two elements."""
    return json.dumps({"name": "sweep", "array": "3,7", "run": "train", "on_checkpoint": {**WATCH, "path": path}})


@pytest.mark.parametrize("seed", range(25))
def test_whatever_is_killed_there_is_one_evaluation_for_each(seed: int) -> None:
    """The daemon is killed after so many turns of the loop, again and again, while checkpoints come and go."""
    draw = random.Random(seed)

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(max_parallel=draw.randint(1, 3)))
        for step in range(1, 9):
            cluster.save(step)
            for _ in range(draw.randint(0, 60)):
                await asyncio.sleep(0)
                cluster.go_on(bench.clock.now)
            await asyncio.sleep(draw.choice((0, 0, 0.5, 2.1)))
            for _ in range(draw.randint(0, 30)):
                await asyncio.sleep(0)
            await bench.kill()
            await bench.start()
        await pass_time(bench, cluster, 30)
        assert sorted(cluster.evaluated()) == [f"step_{step}" for step in range(1, 9)]
        watch = await describe(bench)
        assert sorted(each["score"] for each in watch["evaluations"]) == list(range(1, 9))
        assert len({each["job"] for each in watch["evaluations"]}) == 8
        end_training(bench, cluster)
        await pass_time(bench, cluster, 30)
        assert (await describe(bench))["closed"]

    play(scene)


def test_a_failed_write_is_made_up_for() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        await pass_time(bench, cluster, 1)
        bench.repository.broken = True
        cluster.save(1)
        await pass_time(bench, cluster, 10)
        assert cluster.evaluated() == []
        bench.repository.broken = False
        await pass_time(bench, cluster, 20)
        assert cluster.evaluated() == ["step_1"] and (await describe(bench))["evaluations"][0]["score"] == 1

    play(scene)


@pytest.mark.parametrize(
    ("keys", "exit_code", "wanted"),
    [
        ({"select": {"every": 10}}, 0, [10, 13]),
        ({"select": {"milestones": [4, 11]}}, 0, [5, 13]),
        ({"select": {"every": 10}}, 1, [10, 13]),
        ({"select": {"every": 10}, "after_failure": False}, 1, [10]),
    ],
)
def test_the_last_one_is_evaluated_when_no_other_can_come(
    keys: dict[str, Any], exit_code: int, wanted: list[int]
) -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(**keys))
        await pass_time(bench, cluster, 1)
        for step in (5, 10, 13):
            cluster.save(step)
            await pass_time(bench, cluster, 3)
        assert cluster.evaluated() == [f"step_{step}" for step in wanted if step != 13 or "milestones" in str(keys)]
        end_training(bench, cluster, exit_code)
        await pass_time(bench, cluster, 5)
        await bench.kill()
        await bench.start()
        await pass_time(bench, cluster, 40)
        assert cluster.evaluated() == [f"step_{step}" for step in wanted]
        assert (await describe(bench))["closed"]

    play(scene)


def test_the_latest_overtakes_what_waits() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(select="latest"))
        cluster.kept = {"step_1"}
        cluster.save(1)
        await pass_time(bench, cluster, 3)
        for step in (2, 3, 4):
            cluster.save(step)
            await pass_time(bench, cluster, 3)
        (job,) = cluster.launched[1:]
        cluster.tell(f"{job.id}.0", *end(bench.repository.jobs[job.id].job, bench.clock.now))
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_1", "step_4"]

    play(scene)


def test_a_replaced_checkpoint_counts_only_where_changes_do() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(again="on_change"))
        cluster.save(1)
        await pass_time(bench, cluster, 10)
        assert cluster.evaluated() == ["step_1"]
        await bench.kill()
        await bench.start()
        await pass_time(bench, cluster, 10)
        assert cluster.evaluated() == ["step_1"]
        cluster.save(1, size=2)
        await pass_time(bench, cluster, 10)
        assert cluster.evaluated() == ["step_1", "step_1"]

    play(scene)


def test_a_source_that_does_not_answer_is_asked_until_it_does() -> None:
    """Also past the end of the job: the last checkpoints are there when it answers."""

    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        await pass_time(bench, cluster, 1)
        cluster.silent_source = True
        cluster.save(1)
        end_training(bench, cluster)
        await pass_time(bench, cluster, 120)
        watch = await describe(bench)
        assert watch["note"] == "no route to the cluster" and not watch["closed"]
        cluster.silent_source = False
        await pass_time(bench, cluster, 30)
        assert cluster.evaluated() == ["step_1"]
        assert (await describe(bench))["closed"]

    play(scene)


def test_what_is_refused_has_its_reason_and_holds_up_nothing() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        cluster.save(1)
        cluster.impossible = "Requested node configuration is not available"
        await pass_time(bench, cluster, 5)
        (refused,) = (await describe(bench))["evaluations"]
        assert (refused["state"], refused["job"]) == ("REFUSED", None)
        assert "node configuration is not available" in refused["trouble"]
        cluster.impossible = ""
        cluster.save(2)
        await pass_time(bench, cluster, 5)
        assert cluster.evaluated() == ["step_2"]

    play(scene)
