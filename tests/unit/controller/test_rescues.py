"""The rescue of a job's data: one at a time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, end, give_order, play, start_job, until

from overspan.bridge.model import events
from overspan.bridge.model.errors import Conflict
from overspan.bridge.runtime.data.rescue import RescuedData


class Keeper:
    """A cluster that sends what a job has left once it is told to."""

    def __init__(self) -> None:
        self.go = asyncio.Event()
        self.asked = 0

    async def rescue_data(self, job: Any, handle: str) -> RescuedData | None:
        """Wait, and send."""
        self.asked += 1
        await self.go.wait()
        return RescuedData(1, 7, ())


class KeepingCluster(FakeCluster):
    """A cluster where jobs leave data."""

    def __init__(self) -> None:
        super().__init__()
        self.keeper = Keeper()

    async def rescue_data(self, job: Any, handle: str) -> RescuedData | None:
        return await self.keeper.rescue_data(job, handle)


def test_a_second_rescue_of_a_job_is_refused_while_one_runs() -> None:
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        number = await start_job(bench)
        cluster.tell(f"{number}.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.job().over)
        storage = bench.controller.storage
        first = asyncio.create_task(storage.rescue("1"))
        await until(lambda: bool(cluster.keeper.asked))
        with pytest.raises(Conflict, match="the data of job 1 is being sent or removed by another command"):
            await storage.rescue("1")
        cluster.keeper.go.set()
        assert (await first)["size"] == 7
        assert (await storage.rescue("1"))["files"] == 1

    play(scene, cluster)


def test_a_job_is_not_queued_again_while_its_data_is_sent() -> None:
    """The new launch would begin with the folder that the rescue removes."""
    cluster = KeepingCluster()

    async def scene(bench: Bench) -> None:
        number = await start_job(bench)
        cluster.tell(f"{number}.0", *end(bench.job(), bench.clock.now))
        await until(lambda: bench.job().over)
        rescue = asyncio.create_task(bench.controller.storage.rescue("1"))
        await until(lambda: bool(cluster.keeper.asked))
        with pytest.raises(Conflict, match="what job 1 could not send is being sent or removed"):
            await give_order(bench, "1", events.Requeue)
        cluster.keeper.go.set()
        await rescue
        await give_order(bench, "1", events.Requeue)

    play(scene, cluster)
