"""When a cluster last answered, how long that took, and what is left of its limit of calls."""

from __future__ import annotations

import asyncio
from typing import Any

from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, until


class SlowCluster(FakeCluster):
    """A cluster whose nodes take a while, and that limits calls."""

    def state(self) -> dict[str, Any]:
        return {"calls_left": lambda: "24 of 30, 2/s"}

    async def nodes(self) -> list[Any]:
        await asyncio.sleep(0.02)
        return await super().nodes()


def describe(bench: Bench) -> dict[str, Any]:
    return bench.controller.health.list_clusters()[0]


def test_a_question_for_nodes_is_timed() -> None:
    async def scene(bench: Bench) -> None:
        assert describe(bench)["answered_at"] is None and describe(bench)["answer_seconds"] is None
        await bench.controller.health.nodes(["local"])
        assert describe(bench)["answered_at"] == bench.clock.now
        assert 0.02 <= describe(bench)["answer_seconds"] < 5
        assert describe(bench)["calls_left"] == "24 of 30, 2/s"

    play(scene, SlowCluster())


def test_silence_leaves_the_last_answer() -> None:
    async def scene(bench: Bench) -> None:
        await bench.controller.health.nodes(["local"])
        at = bench.clock.now
        bench.cluster.fail(True)
        bench.clock.advance(60)
        await bench.controller.health.nodes(["local"])
        assert describe(bench)["answered_at"] == at

    play(scene)


def test_a_submission_and_a_report_are_answers_too() -> None:
    async def scene(bench: Bench) -> None:
        job = await bench.submit("one")
        await until(lambda: "1.0" in bench.cluster.journals)
        await until(lambda: describe(bench)["answered_at"] is not None)
        assert describe(bench)["answer_seconds"] is not None
        bench.clock.advance(60)
        bench.cluster.tell("1.0", *begin(bench.job(job), bench.clock.now))
        await until(lambda: describe(bench)["answered_at"] == bench.clock.now)

    play(scene)


def test_a_clock_that_is_set_takes_the_answer_with_it() -> None:
    async def scene(bench: Bench) -> None:
        cluster = bench.controller.clusters.get("local")
        cluster.note_answer(100.0, 0.5)
        cluster.move_clock(-40.0)
        assert (cluster.answered_at, cluster.answer_seconds) == (60.0, 0.5)
        cluster.note_answer(70.0)
        assert (cluster.answered_at, cluster.answer_seconds) == (70.0, 0.5)

    play(scene)
