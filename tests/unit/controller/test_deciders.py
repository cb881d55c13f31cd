"""Who decides may differ from launch to launch on one cluster."""

from __future__ import annotations

from typing import Any

from tests.unit.controller.fakes import Bench, FakeCluster, give_order, play, turn, until

from overspan.adapters.contract import Decider
from overspan.bridge.model import events


class MixedCluster(FakeCluster):
    """A cluster where the daemon decides about every second job."""

    def state(self) -> dict[str, Any]:
        return {"decider_of": self.decider_of}

    def decider_of(self, handle: str) -> Decider:
        return Decider.DAEMON if int(handle.partition(".")[0]) % 2 == 0 else Decider.SUPERVISOR


def test_the_handle_tells_who_decides() -> None:
    cluster = MixedCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit("a")
        await bench.submit("a")
        await until(lambda: len(cluster.handles) == 2)
        for handle in ("1.0", "2.0"):
            cluster.tell(handle, events.Granted(bench.clock.now, (("a", 0, "me", "10.0.0.1", ()),)))
        await until(lambda: len(cluster.orders) == 1)
        assert [(order.handle, type(order.event)) for order in cluster.orders] == [("2.0", events.Launch)]
        # The next daemon knows it too.
        await bench.kill()
        await bench.start()
        cluster.tell("2.0", events.NodeEnded(bench.clock.now, "a", 0, 0))
        await until(lambda: bench.state(2) == "COMPLETED")
        assert bench.job(1).tasks[0].attempts == ()

    play(scene, cluster)


def test_the_queue_of_the_cluster_is_told_of_what_waits_in_it() -> None:
    cluster = MixedCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit("a")
        await bench.submit("a")
        await until(lambda: len(cluster.handles) == 2)
        await give_order(bench, "2", events.Hold)
        assert bench.job(2).held
        await until(lambda: [type(order.event) for order in cluster.orders] == [events.Hold])
        await turn()
        # It has had its effect, so nobody waits to see it.
        assert bench.repository.rows == {}
        await give_order(bench, "2", events.Release)
        assert not bench.job(2).held and bench.job(2).late == 0
        await until(lambda: len(cluster.orders) == 2)

    play(scene, cluster)


class Limited(MixedCluster):
    """A cluster that keeps wall times of its own for what the daemon decides."""

    def state(self) -> dict[str, Any]:
        return {**super().state(), "keeps_limits": self.keeps_limits}

    def keeps_limits(self, handle: str) -> bool:
        return self.decider_of(handle) is Decider.DAEMON


def test_a_wall_time_is_in_force_when_the_cluster_has_told_it() -> None:
    cluster = Limited()

    async def scene(bench: Bench) -> None:
        await bench.submit("a")
        await bench.submit("a")
        await until(lambda: len(cluster.handles) == 2)
        cluster.tell("2.0", events.Granted(bench.clock.now, (("a", 0, "me", "10.0.0.1", ()),)))
        await until(lambda: len(cluster.orders) == 1)
        wanted = events.SetTime(bench.clock.now, 90)
        await bench.controller.orders.give("2", lambda at, task: wanted)
        await until(lambda: len(cluster.orders) == 2)
        assert cluster.orders[-1].event == wanted and bench.job(2).tasks[0].time is None
        cluster.tell("2.0", wanted)
        await until(lambda: bench.job(2).tasks[0].time == 90)
        assert not any(row.payload["event"]["event"] == "SetTime" for row in bench.repository.rows.values())

    play(scene, cluster)
