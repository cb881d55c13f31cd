"""A world with a fake Slurm in it: its clock, its login node, and daemons that come and go."""

from __future__ import annotations

import asyncio
import time
from asyncio import Future
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from concurrent.futures import Executor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.slurm_controller import FakeSlurm, Site
from tests.fakes.slurm_transport import FakeTransport
from tests.simulation.clockwork import START, Chaos, Clockwork, LoopTimers, SteppedStore
from tests.simulation.machine import Machine

from overspan.adapters.contract import Adapter, ClusterConfig
from overspan.adapters.slurm.cluster import SlurmCluster
from overspan.bridge.config.settings import Settings
from overspan.bridge.controller.controller import Controller, ControllerParts
from overspan.bridge.controller.submission.parsing import read
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State
from overspan.bridge.readers.submission import Submission
from overspan.bridge.store.records import JobQuery

REMOTE = {"transport": "ssh", "host": "login"}


class WorldLoop(Clockwork):
    """An event loop whose time moves on when nobody has anything to do; work for threads is done at once."""

    def run_in_executor(  # type: ignore[override]
        self, executor: Executor | None, func: Callable[..., Any], *args: Any
    ) -> Future[Any]:
        """Call the function here and now."""
        done = self.create_future()
        try:
            done.set_result(func(*args))
        except Exception as error:
            done.set_exception(error)
        return done


class Calm(Chaos):
    """No mischief: a store that answers at once."""

    async def pause(self) -> None:
        """Nothing happens."""


class SlurmWorld:
    """One cluster, one store, and the time of both; use it as a fixture's value."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, site: Site | None = None) -> None:
        self.folder = folder
        self.loop = WorldLoop()
        self.slurm = FakeSlurm(START, site)
        self.transport = FakeTransport(self.slurm, folder, lambda: START + self.loop.time())
        self.store: SteppedStore
        self.set_by = 0.0
        """By how many seconds the clock of the daemon's machine was set; that of the cluster is right."""
        patch.setattr(time, "time", self.now)
        patch.setattr(time, "monotonic", self.loop.time)
        patch.setattr(time, "clock_gettime", lambda which: self.loop.time())
        # Each adapter is that of a process which has just begun.
        patch.setattr("overspan.adapters.slurm.cluster.find_process_start", self.now)

    def now(self) -> float:
        """The time of the daemon's machine, in seconds since 1970."""
        return START + self.loop.time() + self.set_by

    def play(self, story: Coroutine[Any, Any, None]) -> None:
        """Tell a story to its end."""
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self._tell(story))

    async def _tell(self, story: Coroutine[Any, Any, None]) -> None:
        self.store = SteppedStore.open_within(Calm(0))
        try:
            await story
        finally:
            self.store.close()

    def open(self, settings: Mapping[str, Any] | None = None) -> SlurmCluster:
        """The adapter of a daemon that starts now."""
        return SlurmCluster(ClusterConfig("fake", "slurm", {**REMOTE, **(settings or {})}), self.transport)

    @asynccontextmanager
    async def daemon(self, **settings: Any) -> AsyncIterator[Daemon]:
        """A daemon over the world's store; the next one takes up what it leaves."""
        cluster = {"kind": "slurm", **REMOTE, **settings}
        chosen = Settings.model_validate({"clusters": {"fake": cluster}, "default_cluster": "fake"})

        def open_any(config: ClusterConfig) -> Adapter:
            return SlurmCluster(config, self.transport) if config.kind == "slurm" else Machine(Calm(0), config.name)

        parts = ControllerParts(
            self.store, chosen, str(self.folder / "state"), LoopTimers(), self.now, read, lambda kind: open_any
        )
        others = asyncio.all_tasks()
        controller = await Controller.open(parts)
        daemon = Daemon(self, controller)
        try:
            yield daemon
        finally:
            if daemon.killed:
                await _bury(others)
                parts.timers.close()
            else:
                await controller.close()


async def _bury(others: set[asyncio.Task[Any]]) -> None:
    """End everything that a killed daemon was at."""
    own = asyncio.all_tasks() - others
    for task in own:
        task.cancel()
    await asyncio.gather(*own, return_exceptions=True)


class Daemon:
    """A controller, and what users ask of it."""

    def __init__(self, world: SlurmWorld, controller: Controller) -> None:
        self.world = world
        self.controller = controller
        self.killed = False
        """Set to have it killed at the end of its block in place of being ended."""

    async def submit(self, text: str, kind: str = "job_file") -> int:
        """Submit a job file or a batch script; gives the job's number."""
        submission = Submission(kind, text, "job", command=("sbatch", "job"), directory="/home/ada", user="ada")
        return (await self.controller.submit(submission)).id

    async def job(self, number: int) -> Job:
        """A job as the store has it."""
        (found,) = await self.world.store.find(JobQuery(ids=(number,)))
        return found.job

    async def elements(self, array: int) -> list[Job]:
        """The elements of an array that have become jobs."""
        return [found.job for found in await self.world.store.find(JobQuery(arrays=(array,)))]

    async def until(self, number: int, *states: State, seconds: float = 900) -> Job:
        """Wait until a job is in one of the states."""
        end = self.world.now() + seconds
        while (job := await self.job(number)).state not in states:
            assert self.world.now() < end, f"job {number} is {job.state.value} ({job.reason}), not {states}"
            await asyncio.sleep(0.5)
        return job
