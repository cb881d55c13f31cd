"""Orders on launches that wait: each is found again in the queue, at its new place."""

from __future__ import annotations

import asyncio
from pathlib import Path

from overspan.adapters.contract import ClusterConfig, Launch, Order
from overspan.adapters.pool.cluster import PoolCluster
from overspan.bridge.model.events import Cancel, Event, Hold, Release, SetPriority, SetTime
from overspan.bridge.model.job import new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

TASK = TaskSpec("t", run="true", resources=Resources(cpus=1))


def test_an_order_changes_the_place_of_a_launch_that_waits(tmp_path: Path) -> None:
    launches = {f"{n}.0": Launch(f"token-{n}", new_job(n, JobSpec("j", (TASK,)), 0.0)) for n in (1, 2, 3)}
    pool = PoolCluster(ClusterConfig("p", "pool", state=str(tmp_path), list_cursors=dict, find_launch=launches.get))

    def lines() -> list[list[str]]:
        return [[launch.handle for launch in line] for line in pool._queue.lines()]

    def order(handle: str, event: Event) -> None:
        asyncio.run(pool.order([Order(f"{handle}-{event!r}", handle, event)]))

    asyncio.run(pool.submit(list(launches.values())))
    assert lines() == [["1.0", "2.0", "3.0"]]
    order("3.0", SetPriority(1.0, 10))
    assert lines() == [["3.0", "1.0", "2.0"]]
    order("1.0", SetTime(2.0, 60))
    assert lines() == [["3.0", "2.0"], ["1.0"]]
    order("2.0", Hold(3.0))
    assert lines() == [["3.0"], ["1.0"]]
    order("2.0", Release(4.0))
    assert lines() == [["3.0", "2.0"], ["1.0"]]
    order("3.0", Cancel(5.0))
    assert lines() == [["2.0"], ["1.0"]] and len(pool._queue) == 2
