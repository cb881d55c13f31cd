"""Stories of a local cluster: jobs that wait for a file, and what is asked of them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

from tests.contract.conformance import Follower, handle_of
from tests.system.local.machine import list_supervisors

from overspan.adapters.contract import ClusterConfig, Launch, Order
from overspan.adapters.local import LocalCluster, open_cluster
from overspan.bridge.model.events import (
    Event,
    Queued,
)
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec

Story = Callable[[LocalCluster], Coroutine[Any, Any, None]]
HOLD = "while [ ! -e go ]; do sleep 0.02; done; echo went; exit 5"


def open_on(root: Path, waiting: Sequence[Launch] = (), **settings: Any) -> LocalCluster:
    """A cluster of one CPU with these settings; `waiting` is what the daemon knows of no grant of."""
    numbers = {"cpus": 1, "gpus": 0, **settings}
    return open_cluster(ClusterConfig("local", "local", numbers, str(root), list_waiting=lambda: waiting))


def play(cluster: LocalCluster, story: Story) -> None:
    """Run a story with a cluster and close it."""

    async def tell() -> None:
        try:
            async with asyncio.timeout(600):
                await story(cluster)
        finally:
            await cluster.close()

    asyncio.run(tell())


def make_job(root: Path, number: int, run: str = HOLD, *, group: bool = False, **task: Any) -> Job:
    """A job of one task that holds its CPU until the file `go` is there."""
    spec = TaskSpec("main", run=run, workdir=str(root.parent), **task)
    origin = Origin(directory=str(root.parent))
    return new_job(number, JobSpec("test", (spec,), group=group, origin=origin), float(number))


def list_pids(root: Path) -> list[int]:
    """The processes of the living supervisors."""
    return sorted(process.pid for process in list_supervisors(root))


def order_of(token: str, handle: str, event: Event) -> Order:
    """An order as the daemon hands it over."""
    return Order(token, handle, event)


def reasons(follower: Follower, handle: str) -> list[str]:
    """Why a launch waited, in order."""
    return [event.reason for event in follower.events[handle] if isinstance(event, Queued)]


def make_launches(*jobs: Job, throttle: int | None = None) -> list[Launch]:
    """What is submitted of jobs, and handed over again."""
    return [Launch(f"token-{job.id}.{job.launch}", job, {}, throttle) for job in jobs]


async def submit(cluster: LocalCluster, *jobs: Job) -> Follower:
    """Submit first launches and follow them."""
    answers = await cluster.submit(make_launches(*jobs))
    return Follower(cluster, {handle_of(answer): job for answer, job in zip(answers, jobs, strict=True)})
