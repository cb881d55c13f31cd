"""The rescue of a job's data: one at a time."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from overspan.bridge.controller.features.storage import Storage
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


def test_a_second_rescue_of_a_job_is_refused_while_one_runs() -> None:
    async def run() -> None:
        keeper = Keeper()
        entry = SimpleNamespace(job=SimpleNamespace(id=5, over=True), cluster="leo", handle="h")

        async def find(ref: str) -> Any:
            return SimpleNamespace(entry=entry)

        clusters: Any = SimpleNamespace(get=lambda name: SimpleNamespace(adapter=keeper))
        storage = Storage(clusters, {}, cast(Any, SimpleNamespace(find=find)), cast(Any, None), shared=False)
        first = asyncio.create_task(storage.rescue("5"))
        while not keeper.asked:
            await asyncio.sleep(0)
        with pytest.raises(Conflict, match="the data of job 5 is being sent by another rescue"):
            await storage.rescue("5")
        keeper.go.set()
        assert (await first)["size"] == 7
        assert (await storage.rescue("5"))["files"] == 1

    asyncio.run(run())
