"""Submissions to the fake Slurm."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest
from tests.fakes.slurm_jobs import Request
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.adapters.slurm.samples import NOW, read_script

from overspan.adapters.contract import Accepted, Launch
from overspan.adapters.slurm.commands.queries import Queries
from overspan.adapters.slurm.rendering.renderer import Renderer
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.submission.in_doubt import SubmissionAnswer
from overspan.adapters.slurm.submission.submitter import Submitter
from overspan.adapters.slurm.transports.transport import Done
from overspan.bridge.model.errors import TimedOut, Unreachable
from overspan.bridge.model.job import Job

T = TypeVar("T")

UNKNOWN_QOS = Done(1, b"", b"sbatch: error: Batch job submission failed: Invalid qos specification\n")
AT_LIMIT = Done(1, b"", b"sbatch: error: AssocMaxSubmitJobLimit\nsbatch: error: Job violates policy\n")
"""What a Slurm says of a job that it never takes, and of one that it takes later."""
LATER = NOW + 100
"""When a process began that finds what an earlier one has left."""


class Bench:
    """Submissions by a process that began at `started_at`; all jobs were submitted to it at NOW."""

    def __init__(self, world: SlurmWorld, started_at: float = NOW - 100) -> None:
        self.world, self.slurm, self.transport = world, world.slurm, world.transport
        self.root = world.folder / "root"
        self.asked = Queries(world.transport, 10)
        self.submitter = Submitter(self.asked, Renderer(Settings(), str(self.root)), started_at)
        self.submitter.monotonic = world.loop.time

    def begin_again(self) -> Self:
        """A process that has begun since."""
        return type(self)(self.world, LATER)

    def add(self, token: str, state: str = "PENDING", restarts: int = 0) -> int:
        """A native job of an earlier submission, which stays as it is; the state HELD is PENDING by a user's hold."""
        number = self.slurm.submit([Request(comment=f"overspan={token}", script="#!/bin/sh", hold=True)])
        job = self.slurm.jobs[number]
        job.restarts = restarts
        if state != "HELD":
            job.held, job.reason = "" if state == "PENDING" else job.held, "None"
            job.begin = self.world.now() + 1e6
            job.flag = "" if state == "PENDING" else state
        return number

    async def attempt(self, *wanted: Launch) -> list[SubmissionAnswer]:
        """Submit once. Raises TimedOut where one is in doubt."""
        answers = await self.submitter.submit(wanted)
        if len(answers) < len(wanted):
            raise TimedOut(self.submitter.in_doubt)
        return [answers[launch.token] for launch in wanted]

    async def submit(self, *wanted: Launch, patience: float = 300.0) -> list[SubmissionAnswer]:
        """Submit, and again as the daemon does, until there are answers."""
        end = self.world.now() + patience
        while True:
            try:
                return await self.attempt(*wanted)
            except (TimedOut, Unreachable):
                if self.world.now() >= end:
                    raise
                await asyncio.sleep(4)

    async def accepted(self, launch: Launch) -> Accepted:
        """Submit, until there is an answer: it is accepted."""
        (answer,) = await self.submit(launch)
        assert isinstance(answer, Accepted)
        return answer

    async def sleep(self, seconds: float) -> None:
        """Let time pass, for Slurm too."""
        await asyncio.sleep(seconds)
        self.slurm.catch_up(self.world.now())

    def count(self, command: str) -> int:
        """How often a command was sent."""
        return sum(words[0] == command for words in self.transport.asked)

    def alive(self) -> list[int]:
        """The native jobs that are not over."""
        return sorted(job.id for job in self.slurm.jobs.values() if not job.over)

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        """Tell a story; there is one in each world."""
        self.world.play(story)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """Submissions by a process that began before any of them."""
    return Bench(SlurmWorld(tmp_path, monkeypatch))


def launch(number: int = 1, launches: int = 0, job: Job | None = None) -> Launch:
    """A launch of a small script, or of this job."""
    job = job or read_script("#!/bin/sh\ntrue\n", number=number)
    return Launch(f"inst-{number}-{launches}", replace(job, launch=launches))


def play(story: Coroutine[Any, Any, T]) -> T:
    """Run a story that needs no Slurm."""
    return asyncio.run(story)
