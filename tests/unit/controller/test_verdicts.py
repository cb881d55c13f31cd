"""The verdict of a cluster that judges submissions itself."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, play, until

from overspan.adapters.contract import Refusal
from overspan.bridge.cli.jobs.exit_status import describe_end
from overspan.bridge.cli.jobs.no_output import explain_silence
from overspan.bridge.cli.jobs.show import job_text
from overspan.bridge.client import Outcome
from overspan.bridge.controller.submission.submitter import ScheduledRun
from overspan.bridge.model.errors import Rejected, StoreFailed
from overspan.bridge.model.job import Job
from overspan.bridge.model.schedule import Schedule
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.schedule_records import ScheduleFacts, StoredSchedule


class JudgingCluster(FakeCluster):
    """A cluster whose answer is waited for; it makes no trial."""

    def state(self) -> dict[str, Any]:
        return {"verdict_seconds": 60.0}

    async def admit(self, job: object) -> Refusal | None:
        raise AssertionError("no trial is made where the verdict is waited for")


class TryingCluster(JudgingCluster):
    """One that makes trials too."""

    async def admit(self, job: Job) -> Refusal | None:  # type: ignore[override]
        return await FakeCluster.admit(self, job)


def test_an_accepted_job_is_on_the_cluster_when_the_answer_comes() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        assert list(bench.controller.recorder.registry.watched("local").values()) == [1]

    play(scene, JudgingCluster())


def test_a_refusal_is_the_answer_in_the_clusters_words_and_leaves_no_job() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        with pytest.raises(Rejected, match=r"^Batch job submission failed: Invalid qos specification\n"):
            await bench.submit(token="a")
        recorder = bench.controller.recorder
        assert (recorder.registry.get(1), bench.repository.jobs, bench.repository.rows, bench.repository.receipts) == (
            None,
            {},
            {},
            {},
        )
        assert (recorder.registry.live, bench.clock.due()) == (0, {})
        # Its number is not given again.
        assert await bench.submit(token="a") == 2

    play(scene, JudgingCluster())


def test_a_refusal_after_the_answer_is_a_failed_job_in_the_clusters_words() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.fail(True)
        assert await bench.submit() == 1
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        bench.cluster.fail(False)
        bench.clock.advance(60)
        await until(lambda: bench.job().state is State.FAILED)
        assert "Invalid qos specification" in (await bench.repository.timeline(1))[-1].text
        shown = await bench.controller.job("1")
        assert (shown["reason"], shown["refusal"]) == ("BadConstraints", "Invalid qos specification")
        text = "job 1 (one) is FAILED (BadConstraints); Invalid qos specification"
        assert describe_end("1", shown, Outcome(True, "FAILED")) == text
        assert "Refused:     Invalid qos specification" in job_text(shown).splitlines()
        assert "did not start: Invalid qos specification" in explain_silence("1", shown, "", []).message

    play(scene, JudgingCluster())


def test_a_refusal_that_cannot_be_taken_back_stays_as_a_job_and_says_so() -> None:
    async def withdraw(job_id: int) -> bool:
        raise StoreFailed("the disk is full")

    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        bench.repository.withdraw = withdraw  # type: ignore[method-assign]
        with pytest.raises(Rejected, match="Invalid qos specification") as caught:
            await bench.submit()
        assert "`span show 1` keeps it" in caught.value.remedy
        assert bench.job().state is State.FAILED

    play(scene, JudgingCluster())


def test_a_refusal_that_a_dead_daemon_did_not_tell_is_asked_for_again() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        held = asyncio.Event()
        withdraw = bench.repository.withdraw

        async def hang(job_id: int) -> bool:
            await held.wait()
            return True

        bench.repository.withdraw = hang  # type: ignore[method-assign]
        asking = asyncio.ensure_future(bench.submit(token="a"))
        await until(lambda: 1 in bench.repository.jobs and bench.repository.jobs[1].job.over)
        await bench.kill()
        await asyncio.gather(asking, return_exceptions=True)
        bench.repository.withdraw = withdraw  # type: ignore[method-assign]
        await bench.start()
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        with pytest.raises(Rejected, match="Invalid qos specification"):
            await bench.submit(token="a")
        assert bench.repository.jobs == {}

    play(scene, JudgingCluster())


def test_a_refused_job_has_not_joined_its_group() -> None:
    async def scene(bench: Bench) -> None:
        group = await bench.submit("one two")
        await bench.controller.job(str(group))
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        with pytest.raises(Rejected):
            await bench.submit(f"three parent={group}")
        assert (await bench.controller.job(str(group)))["joined"] == []

    play(scene, JudgingCluster())


def test_a_refused_run_of_a_schedule_is_kept() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        schedule = Schedule("0 4 * * *")
        stored = StoredSchedule(7, 0, "me", ScheduleFacts("one", "local", schedule, 0.0, 0.0))
        bench.repository.schedule_rows[7] = stored
        run = ScheduledRun(schedule, lambda number: replace(stored, version=1))
        with pytest.raises(Rejected):
            await bench.controller.submitter.make_run(Submission("script", "one", user="me"), run)
        assert bench.job().state is State.FAILED

    play(scene, JudgingCluster())


def test_what_is_refused_for_now_is_answered_with_its_number() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "too many jobs", transient=True, reason="AssocMaxSubmitJobLimit")]
        assert await bench.submit() == 1
        await until(lambda: bench.job().reason == "AssocMaxSubmitJobLimit")

    play(scene, JudgingCluster())


def test_a_cluster_that_does_not_answer_keeps_nobody_waiting() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.fail(True)
        assert await bench.submit() == 1
        assert bench.job().state is State.PENDING

    play(scene, JudgingCluster())


@pytest.mark.parametrize("more", ["begin=3600", "array=1-500"])
def test_what_is_sent_later_is_tried_at_its_submission(more: str) -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.impossible = "Invalid qos specification"
        with pytest.raises(Rejected, match=r"^Batch job submission failed: Invalid qos specification\n"):
            await bench.submit(f"one {more}")
        assert (bench.cluster.submits, bench.repository.jobs) == (0, {})
        bench.cluster.impossible = ""
        assert await bench.submit(f"one {more}") == 1

    play(scene, TryingCluster())


def test_a_cluster_that_is_known_to_be_silent_is_asked_for_no_trial() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.fail(True)
        await bench.submit()
        await until(lambda: bench.controller.clusters.get("local").stale_since is not None)
        assert await bench.submit("one array=1-5") == 2

    play(scene, JudgingCluster())


def test_what_is_not_sent_yet_has_no_verdict_to_wait_for() -> None:
    async def scene(bench: Bench) -> None:
        assert await bench.submit("one begin=3600") == 1
        assert bench.cluster.submits == 0

    play(scene, TryingCluster())
