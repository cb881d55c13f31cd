"""Groups with a deferred task on the fake Slurm: what they do, and what there is of them."""

from __future__ import annotations

import asyncio
import re

from tests.fakes.slurm_jobs import Behaviour, NativeJob
from tests.fakes.slurm_world import Daemon, SlurmWorld

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.states import State

GROUP = """\
name: g
execution: parallel
restart: task
primary_tasks: [train, judge]
termination_delay: 5s
---
name: server
resources: {cpus: 4}
run: serve
---
name: train
resources: {cpus: 4}
time: 5m
run: train
---
name: judge
needs: [ok:train]
resources: {cpus: 4}
time: 5m
run: judge
"""


def program(task: TaskSpec) -> Behaviour:
    """How long each task runs."""
    return {"server": Behaviour(None), "train": Behaviour(60), "judge": Behaviour(30)}[task.name]


def name_of(native: NativeJob) -> str:
    """The task that a native job is for."""
    found = re.search(r"/(\w+)/\d+$", native.request.comment)
    return found[1] if found else ""


def list_tasks(world: SlurmWorld) -> list[str]:
    """What each native job is for, in the order of their ids."""
    return [name_of(job) for _, job in sorted(world.slurm.jobs.items())]


def find(world: SlurmWorld, task: str) -> NativeJob:
    """The newest native job of a task."""
    return next(job for _, job in sorted(world.slurm.jobs.items(), reverse=True) if name_of(job) == task)


async def until_task(daemon: Daemon, number: int, task: str, *states: State, seconds: float = 900) -> Job:
    """Wait until a task has one of these states; gives the job."""
    end = daemon.world.now() + seconds
    while (job := await daemon.job(number)).task(task).state not in states:
        assert daemon.world.now() < end, f"{task} is {job.task(task).state}, the job {job.state} ({job.reason})"
        await asyncio.sleep(0.5)
    return job
