"""What `span plan` prints for a pool."""

from __future__ import annotations

import asyncio
from pathlib import Path

from overspan.adapters.abilities import DeclaredWorker, Plan, WorkerKind, WorkerMessage
from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.pool.cluster import PoolCluster
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.pool.exchanges import FEATURES

LARGE = TaskSpec("w", resources=Resources(cpus=4, gpus=(Gpus(2, "H100"),)), time=3600)
SMALL = TaskSpec("w", resources=Resources(cpus=1))


def open_pool(folder: Path, *workers: TaskSpec) -> PoolCluster:
    pool = PoolCluster(ClusterConfig("p", "pool", state=str(folder), list_cursors=dict, find_launch=lambda _: None))
    declared = [DeclaredWorker(8 + number, f"p-{8 + number}", task) for number, task in enumerate(workers)]
    pool.declare(declared, [WorkerKind(LARGE, "large"), WorkerKind(SMALL, "small")])
    for each in declared:
        asyncio.run(pool.exchange(WorkerMessage(each.job, "a", {}, {}, features=frozenset(FEATURES))))
    return pool


def make_job(number: int = 0, **task: object) -> Job:
    resources = task.pop("resources", Resources(cpus=2, gpus=(Gpus(1, "H100"),)))
    spec = TaskSpec("t", run="python train.py", resources=resources, **task)  # type: ignore[arg-type]
    return new_job(number, JobSpec("fit", (spec,)), 0.0)


def test_a_plan_says_which_class_would_take_it_and_which_worker_has_room(tmp_path: Path) -> None:
    pool = open_pool(tmp_path, LARGE, SMALL)
    assert isinstance(pool, Plan)
    lines = pool.plan(make_job(time=600)).splitlines()
    assert lines[:5] == [
        "# fit: 1 node on one worker of the pool, booked together",
        "# wanted: 2 CPU, 1 H100 GPU, for 10:30 with its grace period",
        "# a worker of class large has 4 CPU, 2 H100 GPU, for 1:00:00: it fits",
        "# a worker of class small has 1 CPU: too small",
        "# now: p-8 has room for it",
    ]
    assert "    python train.py" in lines and "  t-0: 2 CPU, 1 GPU (H100)" in lines


def test_a_plan_changes_nothing_and_sees_what_is_booked(tmp_path: Path) -> None:
    pool = open_pool(tmp_path, LARGE)
    for _ in range(3):
        assert "# now: p-8 has room for it" in pool.plan(make_job())
    asyncio.run(pool.submit([Launch(f"t{number}", make_job(number)) for number in (1, 2)]))
    assert "# now: it would wait; none of 1 workers has room for it" in pool.plan(make_job())
    assert len(pool._queue) == 0
    pool.declare([], [WorkerKind(LARGE, "large")])
    assert "# now: no worker takes jobs, so it would wait for one" in pool.plan(make_job())


def test_a_plan_of_a_group_has_the_sum_of_its_members(tmp_path: Path) -> None:
    lines = open_pool(tmp_path).plan(make_job(num_nodes=2, time=7200)).splitlines()
    assert lines[0] == "# fit: 2 nodes on one worker of the pool, booked together"
    assert lines[1].startswith("# wanted: 4 CPU, 2 H100 GPU for its 2 members on one worker")
    assert lines[2].endswith(": it would end too soon")
