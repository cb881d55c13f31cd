"""A race between clusters whose daemon is killed anywhere: nothing runs twice, is lost or stays behind."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import count_examples
from tests.unit.controller.decisions import SOON, SPECS, Story
from tests.unit.controller.fake_pods import RacingPods, World

from overspan.bridge.config.settings import ClusterSettings, Settings
from overspan.bridge.model.spec import JobSpec

NAMES = ("pods", "more", "other")


class RaceStory(Story):
    """One job's life on three clusters. What ran anywhere is in one account, so twice is a fault."""

    def __init__(self, spec: JobSpec, seed: int, cancelled: bool = False) -> None:
        super().__init__(replace(spec, clusters=NAMES, race=True), seed, cancelled)
        limits: dict[str, Any] = {} if self.random.random() < 0.7 else {"max_submitted": 1}
        clusters = {name: ClusterSettings(kind="pods", **limits) for name in NAMES}
        self.bench.settings = Settings(clusters=clusters, default_cluster="pods")

    def _make_world(self) -> None:
        super()._make_world()
        self.worlds += [World(self.clock, self.random) for _ in NAMES[1:]]
        for world in self.worlds[1:]:
            world.history, world.removed = self.world.history, self.world.removed

    async def _start(self) -> None:
        adapters = [RacingPods(world) for world in self.worlds]
        self.bench.cluster = adapters[0]
        self.bench.others = dict(zip(NAMES, adapters, strict=True))
        await self.bench.start()

    async def _calm_down(self) -> None:
        for world in self.worlds:
            world.trouble = 0.0
        self.bench.repository.broken = False
        # A hold that is on its way has its effect before it is ended.
        await asyncio.sleep(SOON)
        await super()._calm_down()

    def _check(self) -> None:
        super()._check()
        for job in self.jobs:
            numbers = [job.launch, *(bid.launch for bid in job.bids)]
            assert len(set(numbers)) == len(numbers) and max(numbers) <= max(job.newest, job.launch)
            assert job.restarts >= 0
            assert not job.bids or (job.granted_at is None and not job.over)


@settings(max_examples=count_examples(50), deadline=None)
@given(SPECS, st.integers(0, 2**32))
def test_a_race_lives_through_anything(spec: JobSpec, seed: int) -> None:
    RaceStory(spec, seed).run()


@settings(max_examples=count_examples(20), deadline=None)
@given(SPECS, st.integers(0, 2**32))
def test_a_cancel_ends_a_race_on_clusters_that_start_nothing_more(spec: JobSpec, seed: int) -> None:
    RaceStory(spec, seed, cancelled=True).run()
