"""A hold and a grant at the same moment: one of them counts."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tests.unit.controller.fakes import Bench, give_order, play, turn, until
from tests.unit.controller.slow_cluster import SlowCluster

from overspan.adapters.contract import Accepted, Decider, Launch, Refusal
from overspan.bridge.controller.core.dispatch import AGAIN_SECONDS
from overspan.bridge.controller.core.observation import HELD_SECONDS
from overspan.bridge.model import events


class Gated(SlowCluster):
    """The daemon decides, so nothing starts before it says so; what each submission said of a hold is noted."""

    decider = Decider.DAEMON

    def __init__(self) -> None:
        super().__init__()
        self.held: list[bool] = []

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        self.held += [launch.job.held for launch in launches]
        return await super().submit(launches)

    def grant(self, at: float) -> None:
        """Say that the first job has its resources."""
        self.tell("1.0", events.Granted(at, (("a", 0, "me", "10.0.0.1", ()),)))


async def _hold_and_grant(bench: Bench, cluster: Gated) -> None:
    """Have a job held, and granted before its cluster has answered the hold."""
    await bench.submit("a")
    await until(lambda: bool(bench.controller.recorder.registry.watched("local")))
    cluster.slow = {1}
    await give_order(bench, "1", events.Hold)
    cluster.grant(bench.clock.now)
    await turn()
    assert bench.job().held and bench.job().granted_at is None


def test_a_grant_waits_for_the_answer_to_a_hold() -> None:
    cluster = Gated()

    async def scene(bench: Bench) -> None:
        await _hold_and_grant(bench, cluster)
        # The cluster, which tells it again at once, is not asked without a pause.
        asked = cluster.asked
        await turn()
        assert cluster.asked == asked
        # It has given back what it granted.
        cluster.journals["1.0"].clear()
        cluster.slow = set()
        bench.clock.advance(AGAIN_SECONDS)
        await until(lambda: bench.repository.rows == {})
        await turn()
        assert bench.job().held and bench.job().granted_at is None
        await give_order(bench, "1", events.Release)
        cluster.grant(bench.clock.now)
        await until(lambda: bench.job().granted_at is not None)

    play(scene, cluster)


def test_a_grant_that_stands_behind_the_answer_to_a_hold_counts() -> None:
    cluster = Gated()

    async def scene(bench: Bench) -> None:
        await _hold_and_grant(bench, cluster)
        cluster.slow = set()
        bench.clock.advance(AGAIN_SECONDS)
        await turn()
        bench.clock.advance(HELD_SECONDS)
        await until(lambda: bench.job().granted_at is not None)
        assert not bench.job().held

    play(scene, cluster)


def test_a_grant_counts_when_the_hold_is_taken_back() -> None:
    cluster = Gated()

    async def scene(bench: Bench) -> None:
        await _hold_and_grant(bench, cluster)
        await give_order(bench, "1", events.Release)
        bench.clock.advance(HELD_SECONDS)
        await until(lambda: bench.job().granted_at is not None)

    play(scene, cluster)


@pytest.mark.parametrize("released", [False, True])
def test_a_submission_in_doubt_is_made_again_held(released: bool) -> None:
    """Else it could start before the hold, which waits for the answer."""
    cluster = Gated()
    cluster.slow = {1}

    async def scene(bench: Bench) -> None:
        await bench.submit("a")
        await until(lambda: cluster.held == [False])
        await turn()
        await give_order(bench, "1", events.Hold)
        if released:
            await give_order(bench, "1", events.Release)
        cluster.slow = set()
        bench.clock.advance(AGAIN_SECONDS)
        await until(lambda: [type(order.event) for order in cluster.orders] != [])
        assert cluster.held == [False, not released]
        assert [type(order.event) for order in cluster.orders] == [events.Release if released else events.Hold]
        assert bench.job().held is not released

    play(scene, cluster)
