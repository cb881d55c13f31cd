"""A wall time that the present launch cannot have is refused, with the way to it; all others are taken."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, until

from overspan.bridge.controller.orders.requests import Update
from overspan.bridge.model.errors import Conflict


class LowCluster(FakeCluster):
    """What runs there can have two minutes."""

    def __init__(self) -> None:
        super().__init__()
        self.asks = 0

    def state(self) -> dict[str, Any]:
        return {"longest_time": self.longest_time}

    async def longest_time(self, handle: str, task: str) -> int | None:
        self.asks += 1
        return 120


async def _update(bench: Bench, seconds: int | None, ref: str = "1") -> None:
    await bench.controller.orders.update(ref, Update({"time_limit": seconds}, "me"))


def test_beyond_the_ceiling_it_is_refused_with_the_way_to_it() -> None:
    cluster = LowCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit("one two")
        await until(lambda: bool(bench.controller.releases.wanted()[0]))
        with pytest.raises(Conflict, match="2:00 at most") as caught:
            await _update(bench, 121)
        assert "cancel it" in caught.value.message
        cluster.tell("1.0", *begin(bench.job(), bench.clock.now))
        await until(lambda: bench.state() == "RUNNING")
        for seconds in (121, None):
            with pytest.raises(Conflict, match="one can have 2:00") as caught:
                await _update(bench, seconds)
            assert "requeuehold 1" in caught.value.message
        with pytest.raises(Conflict, match="two can have 2:00"):
            await _update(bench, 121, "2")
        assert not cluster.orders
        await _update(bench, 120)
        await until(lambda: len(cluster.orders) == 1)

    play(scene, cluster)


def test_what_does_not_grow_is_not_asked_about() -> None:
    cluster = LowCluster()

    async def scene(bench: Bench) -> None:
        await bench.submit("hold one")
        await _update(bench, 10_000)
        await bench.submit("one")
        await until(lambda: bool(bench.controller.releases.wanted()[0]))
        await _update(bench, 30, "2")
        assert cluster.asks == 0

    play(scene, cluster)
