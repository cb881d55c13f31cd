"""Launches that are had back from a cluster: what is lost on the way, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.controller.alternatives import LIST, cluster_of, watch
from tests.unit.controller.fakes import Bench, FakeCluster, turn, until

from overspan.adapters.contract import Order, Refusal
from overspan.bridge.model import events


@pytest.mark.parametrize("kind", ["local", "slurm"])
def test_an_end_whose_cause_died_with_a_daemon(kind: str) -> None:
    """The launch was cancelled on the cluster, and nobody lives who knows that this was the withdrawal."""

    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        bench.clock.advance(60)
        await until(lambda: len(near.orders) == 1)
        await bench.kill()
        near.journals["1.0"].append(events.LaunchLost(bench.clock.now, 0, "cancel", "CANCELLED by 1000"))
        await bench.start()
        await until(lambda: "1.1" in far.journals)
        assert (cluster_of(bench), bench.state(), bench.job().restarts) == ("far", "PENDING", 0)

    watch(scene, kind=kind)


def test_a_cluster_that_keeps_a_job_is_asked_again_after_a_while() -> None:
    class KeepingCluster(FakeCluster):
        async def order(self, orders: Sequence[Order]) -> list[Refusal | None]:
            await super().order(orders)
            return [Refusal(order.token, "Access/permission denied") for order in orders]

    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        for count in range(1, 4):
            bench.clock.advance(60 if count == 1 else 15)
            await until(lambda count=count: len(near.orders) == count)  # type: ignore[misc]
            await until(lambda: bench.repository.rows == {})
            bench.clock.advance(0)
            await turn()
            assert len(near.orders) == count
        assert (far.submits, cluster_of(bench), bench.state()) == (0, "local", "PENDING")

    watch(scene, KeepingCluster())


def test_an_end_that_nobody_asked_for_is_the_end() -> None:
    async def scene(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
        await bench.submit(LIST)
        await until(lambda: "1.0" in near.journals)
        near.tell("1.0", events.LaunchLost(bench.clock.now, 0, "cancel", "CANCELLED by 0"))
        await until(lambda: bench.state() == "CANCELLED")
        assert far.submits == 0

    watch(scene)
