"""What a file asks of its evaluations besides when: several for a checkpoint, retries, time-outs; and what is told."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.evaluation_scenes import (
    WATCH,
    TrainingCluster,
    describe,
    pass_time,
    play,
    submit,
    write_group,
)
from tests.unit.controller.fakes import Bench
from tests.unit.controller.fakes import play as play_live

from overspan.bridge.cli.jobs import evals
from overspan.bridge.controller.submission import parsing
from overspan.bridge.model import events
from overspan.bridge.model.checkpoints.listings import FoundCheckpoint, FoundFile
from overspan.bridge.readers.submission import JOB_FILE, Submission


def write_watches(*watches: dict[str, Any]) -> str:
    """A group with a list under `on_checkpoint`."""
    return write_group().replace(json.dumps(WATCH), json.dumps([{**WATCH, **watch} for watch in watches]))


def test_a_list_evaluates_each_checkpoint_once_for_each_entry() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        speed = {"name": "speed", "task": {"run": "time {checkpoint}"}, "select": {"every": 2}}
        await submit(bench, write_watches({}, speed))
        for step in (1, 2):
            cluster.save(step)
        await pass_time(bench, cluster, 10)
        launched = [job.spec for job in cluster.launched if job.spec.evaluation is not None]
        asked = sorted((spec.evaluation.checkpoint, spec.tasks[0].run) for spec in launched if spec.evaluation)
        assert asked == [
            ("step_1", "judge /c/step_1"),
            ("step_2", "judge /c/step_2"),
            ("step_2", "time /c/step_2"),
        ]
        quality, speed_watch = await bench.controller.evaluations.describe("1")
        assert (quality["name"], [each["score"] for each in quality["evaluations"]]) == ("quality", [1.0, 2.0])
        assert (speed_watch["name"], [each["score"] for each in speed_watch["evaluations"]]) == ("speed", [2.0])

    play(scene)


def test_an_evaluation_that_fails_is_tried_again_on_its_own_budget() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        task = {**WATCH["task"], "max_restarts_on_errors": 1, "backoff": {"first": "1s"}, "time": "2m"}
        await submit(bench, write_group(task=task))
        cluster.kept.add("step_1")
        cluster.save(1)
        await pass_time(bench, cluster, 5)
        (job,) = (job for job in cluster.launched if job.spec.evaluation is not None)
        (spec,) = job.spec.tasks
        assert (spec.retry.max_restarts_on_errors, spec.time) == (1, 120)
        handle, at = f"{job.id}.{job.launch}", bench.clock.now
        cluster.tell(handle, events.NodeEnded(at, spec.name, 0, 0, 0, 1))
        cluster.tell(handle, events.Launch(at + 1, spec.name, 1), events.NodeStarted(at + 1, spec.name, 1, 0))
        await pass_time(bench, cluster, 5)
        (row,) = (await describe(bench))["evaluations"]
        assert row["state"] == "RUNNING" and bench.repository.jobs[job.id].job.tasks[0].errors == 1
        cluster.tell(handle, events.NodeEnded(bench.clock.now, spec.name, 1, 0, 0))
        await pass_time(bench, cluster, 5)
        (row,) = (await describe(bench))["evaluations"]
        assert (row["state"], row["score"]) == ("COMPLETED", 1.0)
        assert cluster.evaluated() == ["step_1"], "it is the same evaluation"

    play(scene)


def test_one_that_exceeds_its_time_is_a_row_with_that_state_and_the_training_goes_on() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group(task={**WATCH["task"], "time": "1m"}))
        cluster.kept.add("step_1")
        cluster.save(1)
        await pass_time(bench, cluster, 5)
        (job,) = (job for job in cluster.launched if job.spec.evaluation is not None)
        name, at = job.spec.tasks[0].name, bench.clock.now
        end = events.NodeEnded(at + 1, name, 0, 0, 0, 0, 15)
        cluster.tell(f"{job.id}.{job.launch}", events.Terminate(at, name, 0, "time", at + 30), end)
        cluster.save(2)
        await pass_time(bench, cluster, 10)
        first, second = sorted((await describe(bench))["evaluations"], key=lambda row: row["checkpoint"])
        assert (first["state"], second["state"], second["score"]) == ("TIMEOUT", "COMPLETED", 2.0)
        assert bench.repository.jobs[1].job.state.value == "RUNNING"

    play(scene)


def test_a_source_that_nobody_can_read_is_told_with_the_reason_until_it_can_be() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        await submit(bench, write_group())
        cluster.unreadable = "/c: Permission denied"
        cluster.save(1)
        await pass_time(bench, cluster, 30)
        watch = await describe(bench)
        assert watch["note"] == "/c: Permission denied" and not watch["evaluations"] and not watch["closed"]
        cluster.unreadable = ""
        await pass_time(bench, cluster, 60)
        watch = await describe(bench)
        assert (watch["note"], cluster.evaluated()) == ("", ["step_1"])

    play(scene)


def test_where_a_quiet_period_is_taken_completeness_is_said_to_be_a_guess() -> None:
    async def scene(bench: Bench, cluster: TrainingCluster) -> None:
        watch = {key: value for key, value in WATCH.items() if key != "ready"}
        text = write_group().replace(json.dumps(WATCH), json.dumps(watch))
        await submit(bench, text)
        cluster.checkpoints["step_1"] = FoundCheckpoint("step_1", True, files=(FoundFile("weights.bin", 1),))
        await pass_time(bench, cluster, 60)
        assert cluster.evaluated() == ["step_1"] and (await describe(bench))["guess"]

    play(scene)


def test_a_plan_says_that_a_quiet_period_is_a_guess_and_nothing_where_a_marker_decides() -> None:
    def prepare(bench: Bench) -> None:
        bench.reader = parsing.read

    async def scene(bench: Bench) -> None:
        watch = {key: value for key, value in WATCH.items() if key != "ready"}
        for text, guesses in ((write_group().replace(json.dumps(WATCH), json.dumps(watch)), 1), (write_group(), 0)):
            asked = Submission(JOB_FILE, text, "job.yaml", directory="/w", user="me")
            _, notes = await bench.controller.submitter.plan(asked)
            assert len([note for note in notes if "30 s without a change count, which is a guess" in note]) == guesses

    # A plan is made in a thread, for which a clock that jumps does not wait.
    play_live(scene, TrainingCluster(), prepare)


@pytest.mark.parametrize("guess", [True, False])
def test_span_evals_says_where_completeness_is_a_guess_and_why_a_folder_is_not_read(
    guess: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    watch = {"name": "quality", "note": "/c: Permission denied", "incomplete": [], "guess": guess, "evaluations": []}

    class Client:
        def __enter__(self) -> Client:
            return self

        def __exit__(self, *_: object) -> None:
            """Nothing is open."""

        def evals(self, job: str) -> list[dict[str, Any]]:
            return [watch]

    call: Any = SimpleNamespace(words=["7"], verb="evals", prefix="span evals", client=Client)
    assert evals.run(call) == 0
    said = capsys.readouterr().err
    assert "quality: /c: Permission denied" in said
    assert ("is complete is a guess" in said) is guess
