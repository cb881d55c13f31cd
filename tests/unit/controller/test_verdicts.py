"""The verdict of a cluster that judges submissions itself."""

from __future__ import annotations

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, play, until

from overspan.adapters.contract import Refusal
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.states import State


class JudgingCluster(FakeCluster):
    """A cluster whose answer is waited for; it makes no trial."""

    verdict_seconds = 60.0

    async def admit(self, job: object) -> Refusal | None:
        raise AssertionError("no trial is made where the verdict is waited for")


def test_an_accepted_job_is_on_the_cluster_when_the_answer_comes() -> None:
    async def scene(bench: Bench) -> None:
        await bench.submit()
        assert list(bench.controller.recorder.book.watched("local").values()) == [1]

    play(scene, JudgingCluster())


def test_a_refusal_is_the_answer_in_the_clusters_words_and_is_kept() -> None:
    async def scene(bench: Bench) -> None:
        bench.cluster.refusals = [Refusal("", "Invalid qos specification")]
        with pytest.raises(Rejected, match=r"^Batch job submission failed: Invalid qos specification\n"):
            await bench.submit()
        assert bench.job().state is State.FAILED
        assert len(bench.ledger.rows) == 0

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


def test_what_is_not_sent_yet_has_no_verdict_to_wait_for() -> None:
    async def scene(bench: Bench) -> None:
        assert await bench.submit("one begin=3600") == 1
        assert bench.cluster.submits == 0

    play(scene, JudgingCluster())
