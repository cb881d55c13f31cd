"""Calls that have no answer when others of their batch have theirs: owed, taken for made, and made again."""

from __future__ import annotations

from tests.unit.controller.fakes import Bench, play, turn, until
from tests.unit.controller.slow_cluster import SlowCluster

from overspan.bridge.controller.core.dispatch import AGAIN_SECONDS
from overspan.bridge.controller.orders.requests import CancelRequest


def test_a_submission_without_an_answer_holds_up_no_other() -> None:
    cluster = SlowCluster()
    cluster.slow = {1}

    async def scene(bench: Bench) -> None:
        await bench.submit("one")
        await bench.submit("two")
        await until(lambda: bench.controller.recorder.registry.watched("local") != {})
        entries = {entry.job.id: entry for entry in bench.controller.recorder.registry}
        assert (entries[1].handle, entries[2].handle) == ("", "2.0")
        owed = [row.job_id for row in bench.controller.recorder.outbox.of_queue(("local", "submit"))]
        assert owed == [1] and bench.controller.recorder.outbox.tried(next(iter(cluster.handles)))
        await turn()
        calls = len(cluster.calls)
        bench.clock.advance(AGAIN_SECONDS)
        await until(lambda: len(cluster.calls) == calls + 1)
        assert cluster.calls[-1] == [token for token, handle in cluster.handles.items() if handle == "1.0"]
        cluster.slow = set()
        bench.clock.advance(AGAIN_SECONDS)
        await until(lambda: entries[1].handle == "1.0")
        assert len(cluster.launched) == 2

    play(scene, cluster)


def test_a_cancel_waits_for_the_answer_of_its_submission() -> None:
    cluster = SlowCluster()
    cluster.slow = {1}

    async def scene(bench: Bench) -> None:
        await bench.submit("one")
        await until(lambda: cluster.calls != [])
        await turn()
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await turn()
        # The cluster may have it: nobody says yet that it is over.
        assert bench.state() == "PENDING" and cluster.orders == []
        cluster.slow = set()
        bench.clock.advance(AGAIN_SECONDS)
        await until(lambda: [type(order.event).__name__ for order in cluster.orders] == ["Cancel"])

    play(scene, cluster)


def test_an_order_without_an_answer_is_given_again() -> None:
    cluster = SlowCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit("one")
        await until(lambda: bool(bench.controller.recorder.registry.watched("local")))
        cluster.slow = {1}
        cluster.calls.clear()
        await bench.controller.orders.cancel(CancelRequest(("1",)))
        await until(lambda: len(cluster.calls) == 1)
        bench.clock.advance(AGAIN_SECONDS)
        await until(lambda: len(cluster.calls) == 2)
        assert cluster.calls[0] == cluster.calls[1]
        cluster.slow = set()

    play(scene, cluster)
