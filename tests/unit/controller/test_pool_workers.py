"""A worker is given no job that may end after it, whenever what ends it comes to be known."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping
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

    async def meet(self, word: str = "a") -> None:
        """Hear of the worker's process."""
        await self.bench.controller.pools.exchange(WorkerMessage(1, word, {}, {}))
        await turn(200)

    async def gives(self, seconds: int | None) -> bool:
        """Whether a job of that limit is given to the worker; it is cancelled then."""
        text = JOB if seconds is None else f"{JOB}time: {seconds}s\n"
        job = await self.bench.submit(text, kind="job_file")
        await until(lambda: self.bench.controller.recorder.registry.get(job).handle != "")  # type: ignore[union-attr]
        await turn()
        given = self.bench.job(job).granted_at is not None
        await self.bench.controller.orders.cancel(CancelRequest((str(job),)))
        await turn(200)
        return given


@pytest.fixture
def play_pool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Play a scene with a pool."""

    def run(scene: Callable[[PoolScene], Awaitable[None]], cluster: LimitedCluster | None = None) -> None:
        limited = cluster or LimitedCluster()

        def prepare(bench: Bench) -> None:
            bench.state_dir, bench.reader = str(tmp_path), read_real
            # One clock for the daemon and the pool's adapter.
            monkeypatch.setattr(pool_cluster, "time", SimpleNamespace(time=bench.clock))

        play(lambda bench: scene(PoolScene(bench, limited)), limited, prepare)

    return run


def test_nothing_is_given_before_the_cluster_has_said_when_the_worker_ends(play_pool: Callable[..., None]) -> None:
    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.meet()
        assert not await pool.gives(60) and not await pool.gives(None)
        pool.cluster.end = pool.bench.clock.now + 1000
        await pool.pass_time(3)
        assert await pool.gives(900) and not await pool.gives(1000) and await pool.gives(None)

    play_pool(scene)


def test_an_unknown_start_is_taken_for_the_earliest(play_pool: Callable[..., None]) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = math.inf
        await pool.apply("time: 1000s\n")
        # Submitted 600 seconds ago, and in contact before its start was seen.
        pool.bench.clock.now += 600
        await pool.meet()
        assert await pool.gives(400) and not await pool.gives(401)
        await pool.see_start(seconds_ago=100)
        assert await pool.gives(890) and not await pool.gives(900)

    play_pool(scene)


def test_a_cluster_that_does_not_answer_is_asked_until_it_does(play_pool: Callable[..., None]) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.silent = True
        await pool.apply()
        await pool.see_start()
        await pool.meet()
        for _ in range(3):
            await pool.pass_time(3)
            assert not await pool.gives(None)
        assert pool.cluster.questions > 2
        (worker,) = pool.bench.controller.pools.describe("p")[0]["workers"]
        assert worker["reason"] == "EndUnknown"
        pool.cluster.silent, pool.cluster.end = False, pool.bench.clock.now + 500
        await pool.pass_time(3)
        assert await pool.gives(400) and not await pool.gives(500)
        asked = pool.cluster.questions
        await pool.pass_time(60)
        assert pool.cluster.questions == asked
        (worker,) = pool.bench.controller.pools.describe("p")[0]["workers"]
        assert worker["reason"] == ""

    play_pool(scene)


def test_a_worker_that_was_started_anew_has_another_end(play_pool: Callable[..., None]) -> None:
    async def scene(pool: PoolScene) -> None:
        pool.cluster.end = math.inf
        await pool.apply()
        await pool.see_start()
        await pool.meet("a")
        assert await pool.gives(5000)
        # Requeued by its cluster, for one; and as somebody has made its limit shorter.
        pool.cluster.end = None
        await pool.meet("b")
        assert not await pool.gives(10)
        pool.cluster.end = pool.bench.clock.now + 100
        await pool.pass_time(3)
        assert await pool.gives(90) and not await pool.gives(100)

    play_pool(scene)


def test_a_cluster_without_limits_of_its_own_is_not_asked(play_pool: Callable[..., None]) -> None:
    class Endless(LimitedCluster):
        def state(self) -> dict[str, Any]:
            return {}

    async def scene(pool: PoolScene) -> None:
        await pool.apply()
        await pool.meet()
        assert await pool.gives(None) and await pool.gives(5000)

    play_pool(scene, Endless())
