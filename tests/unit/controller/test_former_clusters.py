"""A job that left a cluster where it wrote: what it could not send there is told, sent and removed like the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from tests.unit.controller.alternatives import LIST, cluster_of, watch
from tests.unit.controller.fakes import Bench, FakeCluster, begin, end, turn, until

from overspan.adapters.abilities import EndedLaunch
from overspan.bridge.model import events
from overspan.bridge.model.errors import NotFound, OverspanError, Unreachable
from overspan.bridge.model.job import Job
from overspan.bridge.model.storage import MountMode
from overspan.bridge.runtime.data.rescue import RescuedData
from overspan.bridge.runtime.data.unsent import UnsentData, UnsentListing

DAY = 86400.0


class KeepingCluster(FakeCluster):
    """A cluster where jobs leave a file of 8 bytes, with an adapter that can send and remove it."""

    seconds: int | None = None

    def __init__(self, name: str = "local") -> None:
        super().__init__(name)
        self.has: set[int] = set()
        self.asked_for: list[tuple[str, str, list[int]]] = []
        self.away = False

    def state(self) -> dict[str, Any]:
        return {"unsent": self, "mount_modes": frozenset({MountMode.MOUNT_CACHED})}

    def _note(self, verb: str, job: Job, handle: str) -> bool:
        if self.away:
            raise Unreachable(f"{self.name} is away")
        self.asked_for.append((verb, handle, [attempt.number for attempt in job.tasks[0].attempts]))
        return job.id in self.has

    async def list_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        rows = [UnsentData(job.id, "s3://lab/run", "s3", 1, 8, 5.0, "left", "/x") for job, handle in jobs
                if self._note("ls", job, handle)]  # fmt: skip
        return UnsentListing(tuple(rows))

    async def remove_unsent(self, jobs: Sequence[EndedLaunch]) -> UnsentListing:
        listing = await self.list_unsent(jobs)
        self.has -= {row.job for row in listing.found}
        return listing

    async def rescue_data(self, job: Job, handle: str) -> RescuedData | None:
        if not self._note("rescue", job, handle):
            return None
        self.has.discard(job.id)
        return RescuedData(1, 8)


async def leave(bench: Bench, near: FakeCluster, far: FakeCluster) -> None:
    """Run an attempt of job 1 on `local`, requeue it, and have `far` run the next one; the job ends there."""
    await bench.submit(f"{LIST} writes")
    await until(lambda: "1.0" in near.journals)
    near.tell("1.0", *begin(bench.job(), bench.clock.now))
    await until(lambda: bench.state() == "RUNNING")
    at = bench.clock.now
    near.tell("1.0", events.Requeue(at, "me"), events.LaunchLost(at, 0, "requeue"))
    await until(lambda: "1.1" in near.journals)
    bench.clock.advance(60)
    await until(lambda: bool(near.orders))
    near.tell("1.1", near.orders[-1].event)
    await until(lambda: "1.2" in far.journals)
    far.tell("1.2", *begin(bench.job(), bench.clock.now))
    await until(lambda: bench.state() == "RUNNING")
    far.tell("1.2", *end(bench.job(), bench.clock.now))
    far.tell("1.2", events.Flushed(bench.clock.now, "one", 1))
    await until(lambda: bench.state() == "COMPLETED")
    assert cluster_of(bench) == "far"


def play(scene: Callable[[Bench, KeepingCluster, KeepingCluster], Any]) -> None:
    near, far = KeepingCluster(), KeepingCluster("far")
    near.has.add(1)

    async def run(bench: Bench, *_: FakeCluster) -> None:
        await leave(bench, near, far)
        await scene(bench, near, far)

    watch(run, near, far)


def test_it_is_told_where_it_is_with_the_attempts_of_there() -> None:
    async def scene(bench: Bench, near: KeepingCluster, far: KeepingCluster) -> None:
        for name in ("", "local"):
            (row,) = (await bench.controller.unsent_data.list(name)).unsent
            assert (row["cluster"], row["job"]) == ("local", 1)
        assert near.asked_for[0] == ("ls", "1.1", [0])
        # The attempt there has confirmed that all is sent.
        assert far.asked_for == []
        await bench.kill()
        await bench.start()
        assert len((await bench.controller.unsent_data.list()).unsent) == 1

    play(scene)


def test_it_is_sent() -> None:
    async def scene(bench: Bench, near: KeepingCluster, far: KeepingCluster) -> None:
        assert (await bench.controller.storage.rescue("1"))["files"] == 1
        assert (near.asked_for, far.asked_for) == ([("rescue", "1.1", [0])], [("rescue", "1.2", [1])])
        with pytest.raises(NotFound, match="job 1 has left no data on local, far"):
            await bench.controller.storage.rescue("1")

    play(scene)


def test_a_cluster_that_is_away_keeps_no_other_from_sending_and_removing() -> None:
    async def scene(bench: Bench, near: KeepingCluster, far: KeepingCluster) -> None:
        for call in (bench.controller.storage.rescue, bench.controller.unsent_data.remove):
            near.away, far.has = True, {1}
            with pytest.raises(OverspanError, match="local is away"):
                await call("1")
            assert far.has == set()
            near.away = False
            near.has = {1}
            await call("1")
            assert near.has == set()

    play(scene)


def test_it_is_removed_by_hand() -> None:
    async def scene(bench: Bench, near: KeepingCluster, far: KeepingCluster) -> None:
        answer = await bench.controller.unsent_data.remove("1")
        assert answer == {"job": 1, "cluster": "local", "files": 1, "size": 8}

    play(scene)


def test_it_is_removed_after_the_time_of_its_cluster() -> None:
    async def scene(bench: Bench, near: KeepingCluster, far: KeepingCluster) -> None:
        near.seconds = 3600
        bench.clock.now += 3599
        await bench.controller.unsent_data.sweep()
        assert near.has == {1}
        bench.clock.now += 1
        near.away = True
        await bench.controller.unsent_data.sweep()
        near.away = False
        await bench.controller.unsent_data.sweep()
        assert near.has == set()
        near.asked_for.clear()
        await bench.controller.unsent_data.sweep()
        await turn()
        assert near.asked_for == []

    play(scene)
