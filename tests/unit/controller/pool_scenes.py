"""A pool of one worker on a scripted cluster, for tests of what the daemon does with pools."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, begin, play, turn, until

from overspan.adapters.abilities import WorkerMessage
from overspan.adapters.pool import cluster as pool_cluster
from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.controller.submission.submitter import ParsedSubmission
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.readers.submission import Submission, read_submission
from overspan.bridge.runtime.pool.exchanges import FEATURES

FILE = "pool: {{workers: 1}}\nresources: {{cpus: 4}}\n{more}"
JOB = "pool: p\nresources: {cpus: 1}\ngrace_period: 0\nrun: 'true'\n"


def read_real(submission: Submission, kinds: Mapping[str, str], now: float) -> ParsedSubmission:
    """Read a job file as the daemon does."""
    return ParsedSubmission(read_submission(submission, kinds, now))


class LimitedCluster(FakeCluster):
    """A cluster that ends launches by a limit of its own, and says when if it can."""

    def __init__(self) -> None:
        super().__init__()
        self.end: float | None = None
        self.questions = 0
        self.silent = False

    def state(self) -> dict[str, Any]:
        return {"find_end": self.find_end}

    async def find_end(self, handle: str) -> float | None:
        self.questions += 1
        if self.silent:
            raise Unreachable("no route to the cluster")
        return self.end


class PoolScene:
    """A pool of one worker, which is job 1, on a cluster of its own limits; and jobs that wait for it."""

    def __init__(self, bench: Bench, cluster: LimitedCluster) -> None:
        self.bench, self.cluster = bench, cluster

    async def apply(self, more: str = "") -> None:
        """Make the pool, and wait until its worker was launched."""
        await self.bench.controller.pools.apply("p", Submission("job_file", FILE.format(more=more), user="me"))
        await until(lambda: "1.0" in self.cluster.journals and self.bench.job(1).launch == 0)
        await turn()

    async def see_start(self, seconds_ago: float = 0.0) -> None:
        """Let the daemon see the start of the worker."""
        self.cluster.tell("1.0", *begin(self.bench.job(1), self.bench.clock.now - seconds_ago))
        await until(lambda: self.bench.state(1) == "RUNNING")
        await self.pass_time(1)

    async def pass_time(self, seconds: float) -> None:
        """Let time pass, and all do what is due."""
        self.bench.clock.advance(seconds)
        await turn(200)

    async def meet(self, word: str = "a", features: Collection[str] = FEATURES) -> None:
        """Hear of the worker's process."""
        await self.bench.controller.pools.exchange(WorkerMessage(1, word, {}, {}, features=frozenset(features)))
        await turn(200)

    async def send(self, more: str = "", text: str = JOB) -> int:
        """Submit a job to the pool, and wait until its queue has it."""
        job = await self.bench.submit(text + more, kind="job_file")
        await until(lambda: self.bench.controller.recorder.registry.get(job).handle != "")  # type: ignore[union-attr]
        await turn()
        return job

    async def gives(self, seconds: int | None) -> bool:
        """Whether a job of that limit is given to the worker; it is cancelled then."""
        job = await self.send("" if seconds is None else f"time: {seconds}s\n")
        given = self.bench.job(job).granted_at is not None
        await self.bench.controller.orders.cancel(CancelRequest((str(job),)))
        await turn(200)
        return given


ScenePlayer = Callable[..., None]
"""Plays a scene with a pool, on a cluster where one is given."""


def make_player(folder: Path, patch: pytest.MonkeyPatch) -> ScenePlayer:
    """What plays scenes whose daemons have this state folder."""

    def run(scene: Callable[[PoolScene], Awaitable[None]], cluster: LimitedCluster | None = None) -> None:
        limited = cluster or LimitedCluster()

        def prepare(bench: Bench) -> None:
            bench.state_dir, bench.reader = str(folder), read_real
            # One clock for the daemon and the pool's adapter.
            patch.setattr(pool_cluster, "time", SimpleNamespace(time=bench.clock))

        play(lambda bench: scene(PoolScene(bench, limited)), limited, prepare)

    return run
