"""A cluster that is away: asked seldom, heard soon when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.unit.controller.fakes import Bench, FakeCluster, end, start_job
from tests.unit.controller.virtual_time import VirtualClock, run_virtually

from overspan.adapters.contract import Accepted, Launch, Observation, Refusal
from overspan.bridge.config.settings import Settings
from overspan.bridge.model.errors import TimedOut

JITTER = 1.2
LONGEST = Settings().ticks.retry_limit * JITTER
"""Seconds until a cluster that does not answer is asked again, by the settings that nobody has changed."""
AWAY = 600.0


class WatchedCluster(FakeCluster):
    """Notes when it is asked; a submission that is not answered takes `patience` seconds to say so."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.patience = 0.0
        self.deaf = False
        """Takes no submissions, whatever else it does."""
        self.dispatched = False
        self.gap = ""
        self.looks: list[float] = []
        self.calls: list[float] = []

    async def observe(self, since: Mapping[str, str], timeout: float) -> Observation:
        self.looks.append(self.clock())
        if self.down:
            self.dispatched = True
        elif self.dispatched:
            # As the contract has it: the first answer is told, with news or without.
            self.dispatched = False
            return Observation((), self.clock())
        found = await super().observe(since, timeout)
        return replace(found, gap=self.gap)

    async def submit(self, launches: Sequence[Launch]) -> list[Accepted | Refusal]:
        self.calls.append(self.clock())
        if self.deaf:
            await asyncio.sleep(self.patience)
            raise TimedOut("Socket timed out on send/recv operation")
        return await super().submit(launches)


def play(scene: Callable[[Bench, WatchedCluster], Awaitable[None]]) -> None:
    """Run a scene in no time, with a job that runs and the settings as they are."""
    clock = VirtualClock()
    cluster = WatchedCluster(clock)

    async def run() -> None:
        bench = Bench(cluster)
        bench.clock = clock
        await bench.start()
        try:
            await start_job(bench)
            await scene(bench, cluster)
        finally:
            await bench.controller.close()

    run_virtually(clock, run)


def gaps(times: Sequence[float]) -> list[float]:
    return [later - sooner for sooner, later in pairwise(times)]


def test_a_cluster_that_was_away_for_long_is_heard_within_the_longest_wait() -> None:
    async def scene(bench: Bench, cluster: WatchedCluster) -> None:
        cluster.fail(True)
        await asyncio.sleep(AWAY)
        assert bench.controller.clusters.get("local").stale_since is not None and bench.state() == "RUNNING"
        asked = list(cluster.looks)
        # Seldom: the waits grow to what the settings say, and stay there.
        assert min(gaps(asked)[6:]) > LONGEST / 2 and len(asked) < AWAY / 7
        back = bench.clock()
        cluster.fail(False)
        await asyncio.sleep(LONGEST + 0.1)
        assert back < cluster.looks[-1] <= back + LONGEST and LONGEST <= 15
        assert bench.controller.clusters.get("local").stale_since is None

    play(scene)


def test_an_answer_to_somebody_else_ends_the_wait() -> None:
    async def scene(bench: Bench, cluster: WatchedCluster) -> None:
        cluster.fail(True)
        await asyncio.sleep(AWAY)
        looks = len(cluster.looks)
        while len(cluster.looks) == looks:
            await asyncio.sleep(0.1)
        cluster.fail(False)
        assert not await bench.controller.clusters.get("local").find_trouble(bench.clock())
        at = bench.clock()
        await asyncio.sleep(0.1)
        assert cluster.looks[looks + 1] == at < cluster.looks[looks] + LONGEST / 2

    play(scene)


def test_an_answer_while_no_news_come_is_not_told_as_the_end_of_the_silence(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(bench: Bench, cluster: WatchedCluster) -> None:
        caplog.set_level(logging.INFO)
        known = bench.controller.clusters.get("local")
        cluster.fail(True)
        await asyncio.sleep(AWAY)
        for _ in range(10):
            # Calls are answered again; the watch comes back when its own wait is over.
            known.answered()
            assert known.stale_since is not None
            await asyncio.sleep(1.0)
        cluster.fail(False)
        await asyncio.sleep(LONGEST + 0.1)
        assert known.stale_since is None
        said = [each.getMessage() for each in caplog.records if "answer" in each.getMessage()]
        assert [words.partition(":")[0] for words in said] == [
            "cluster local does not answer",
            "cluster local answers again",
        ]

    play(scene)


def test_nothing_is_missing_of_what_nobody_asks_for_any_more() -> None:
    async def scene(bench: Bench, cluster: WatchedCluster) -> None:
        cluster.gap = "the accounting does not answer"
        (handle,) = cluster.handles.values()
        cluster.tell(handle, *end(bench.job(1), bench.clock()))
        await asyncio.sleep(1.0)
        assert bench.state() == "COMPLETED"
        known = bench.controller.clusters.get("local")
        assert cluster.looks and known.gap == ""

    play(scene)


def test_answers_to_questions_do_not_hurry_submissions_that_have_none() -> None:
    async def scene(bench: Bench, cluster: WatchedCluster) -> None:
        cluster.deaf, cluster.patience = True, 40.0
        await bench.submit("two")
        began = len(cluster.calls)
        for _ in range(int(AWAY)):
            await asyncio.sleep(1.0)
            # Questions are answered all the while.
            bench.controller.clusters.get("local").answered()
        times = cluster.calls[began:]
        # Each waits from the end of the one before it.
        assert min(gaps(times)[5:]) > cluster.patience + LONGEST / 2
        cluster.deaf = False
        await asyncio.sleep(cluster.patience + LONGEST)
        assert len(cluster.launched) == 2

    play(scene)
