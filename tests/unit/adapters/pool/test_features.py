"""A group waits for a worker whose version can run it, and says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from overspan.adapters.abilities import DeclaredWorker, WorkerKind, WorkerMessage
from overspan.adapters.contract import Accepted, ClusterConfig, Launch, Order
from overspan.adapters.pool.cluster import PoolCluster
from overspan.adapters.pool.launches import NO_LEASE, PoolLaunch, WorkerLease, make_launch
from overspan.adapters.pool.requests import WorkerRequest
from overspan.adapters.worker_messages import read_message
from overspan.bridge.model.events import Event, Granted, Hold, Queued, Release
from overspan.bridge.model.job import new_job
from overspan.bridge.model.ranks import rank_job
from overspan.bridge.model.resources import NodeNeed, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.pool.exchanges import FEATURES

WORKER = TaskSpec("w", resources=Resources(cpus=4))
TASK = TaskSpec("t", run="true", resources=Resources(cpus=1))
NEW = frozenset(FEATURES)
ONE = WorkerRequest((NodeNeed(1000),))


class Pool:
    """A pool of workers 8 and 9, with what it has told of launches, as a store would have it."""

    def __init__(self, folder: Path, cursors: Mapping[str, str] | None = None, reason: str = "None") -> None:
        self.launches: dict[str, Launch] = {}
        self.cursors = dict(cursors or {})
        self.reason = reason
        for number, nodes in ((1, 2), (2, 1)):
            spec = JobSpec("j", (TaskSpec("t", run="true", resources=Resources(cpus=1), num_nodes=nodes),))
            job = new_job(number, spec, 0.0)
            self.launches[f"{number}.0"] = Launch(f"token-{number}", job)
        config = ClusterConfig(
            "p", "pool", state=str(folder), list_cursors=lambda: self.cursors, find_launch=self.launches.get
        )
        self.cluster = PoolCluster(config)
        self.declare(8, 9)

    def declare(self, *jobs: int) -> None:
        self.cluster.declare([DeclaredWorker(job, f"p-{job}", WORKER) for job in jobs], [WorkerKind(WORKER)])

    def submit(self) -> None:
        for answer in asyncio.run(self.cluster.submit(list(self.launches.values()))):
            assert isinstance(answer, Accepted)
            self.cursors.setdefault(answer.handle, "")

    def meet(self, job: int, features: frozenset[str]) -> None:
        asyncio.run(self.cluster.exchange(WorkerMessage(job, "a", {}, {}, features=features)))

    def order(self, token: str, event: Event) -> None:
        """Order something of the group."""
        asyncio.run(self.cluster.order([Order(token, "1.0", event)]))

    def look(self) -> dict[str, list[Event]]:
        """What is told of each launch since the last look; all of it is stored."""
        seen = asyncio.run(self.cluster.observe(dict(self.cursors), 0))
        self.cursors |= {report.handle: report.cursor for report in seen.reports}
        return {report.handle: list(report.events) for report in seen.reports if report.events}


def _reasons(told: list[Event]) -> list[str]:
    return [event.reason for event in told if isinstance(event, Queued)]


def test_a_group_waits_for_a_worker_of_a_version_that_can_run_it(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.submit()
    assert pool.look() == {}, "no worker is there yet"
    pool.meet(8, frozenset())
    told = pool.look()
    assert _reasons(told["1.0"]) == ["WorkerVersion"]
    assert isinstance(told["2.0"][-1], Granted), "a job of one member needs nothing of a version"
    assert pool.look() == {}, "said once"
    assert [each["lacks"] for each in pool.cluster.list_workers()] == [["groups"]]
    pool.meet(9, NEW)
    told = pool.look()
    assert isinstance(told["1.0"][-1], Granted) and {place[2] for place in told["1.0"][-1].members} == {"p-9"}
    assert [each["lacks"] for each in pool.cluster.list_workers()] == [[], []]


def test_what_was_said_is_taken_back_when_the_worker_goes(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.meet(8, frozenset())
    pool.submit()
    assert _reasons(pool.look()["1.0"]) == ["WorkerVersion"]
    pool.declare(9)
    assert _reasons(pool.look()["1.0"]) == ["None"]


def test_a_group_that_is_released_from_a_hold_says_it_again(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.submit()
    pool.look()
    pool.order("h1", Hold(0.0, "me"))
    pool.meet(8, frozenset())
    assert _reasons(pool.look()["1.0"]) == [], "held jobs have a reason of their own"
    for number in (1, 2):
        pool.order(f"r{number}", Release(0.0, "me"))
        assert _reasons(pool.look()["1.0"]) == ["WorkerVersion"]
        pool.order(f"a{number}", Hold(0.0, "me"))
        pool.look()


def test_a_message_of_an_earlier_version_has_no_features() -> None:
    document = {"job": 8, "word": "a", "held": {}, "journals": {}, "wait": 0}
    assert read_message(document).features == frozenset()
    assert read_message({**document, "features": list(FEATURES)}).features == NEW
    for features in (["a" * 65], [str(number) for number in range(65)]):
        with pytest.raises(ValueError, match="out of bounds"):
            read_message({**document, "features": features})


def test_a_release_keeps_what_the_store_has_or_has_not_yet(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.submit()
    left = list(pool.cursors)
    pool.cursors.clear()
    asyncio.run(pool.cluster.release("i", (), {"token-1"}))
    assert list(pool.cluster._launches) == ["1.0"], "the other's job was never stored"
    pool.cursors["1.0"] = ""
    pool.look()
    assert not pool.cluster._unstored and left == ["1.0", "2.0"]
    asyncio.run(pool.cluster.release("i", {"1.0"}, ()))
    assert list(pool.cluster._launches) == ["1.0"]
    asyncio.run(pool.cluster.release("i", (), ()))
    assert not pool.cluster._launches


def test_no_launch_that_waits_has_anything_of_a_lease(tmp_path: Path) -> None:
    pool = Pool(tmp_path)
    pool.submit()
    pool.look()
    pool.meet(8, NEW)
    pool.look()
    pool.declare(9)
    pool.look()
    assert WorkerLease() == NO_LEASE
    launch = make_launch(pool.launches["1.0"].job, ONE, 0.0)
    # 100,000 wait at once: a field is 0.8 MB.
    assert launch.lease is NO_LEASE and sys.getsizeof(launch) <= 168
    # A rank of its own would be 88 bytes more.
    assert "rank" not in PoolLaunch.__slots__ and launch.rank == rank_job(pool.launches["1.0"].job)
