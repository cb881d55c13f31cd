"""A group over two clusters that both have room for it only now and then, and a daemon that dies meanwhile."""

from __future__ import annotations

import asyncio
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import count_examples
from tests.unit.controller.across_stories import NAMES, AcrossStory, NamingPods
from tests.unit.controller.fake_pods import Objects, World
from tests.unit.controller.fakes import FakeClock

from overspan.adapters.contract import Launch
from overspan.bridge.model import events
from overspan.bridge.model.events import Event
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

LIMIT = 10
SLACK, TROUBLE = 30.0, 300.0
"""Seconds that a decision and its order may take: slow calls; and where calls fail."""
GPUS = Resources(gpus=(Gpus(1),))
SPEC = JobSpec(
    "g",
    (TaskSpec("a", run="true"), TaskSpec("b", run="true", resources=GPUS)),
    group=True,
    start_timeout=LIMIT,
)
"""The second task is on the second cluster, `more`, which is the dearer side."""


class BusyWorld(World):
    """A cluster that others fill; it has room for a part only now and then."""

    def __init__(self, clock: FakeClock, random: Random) -> None:
        super().__init__(clock, random)
        self.trouble = random.choice([0.0, 0.0, 0.5])
        self.room = False
        self.taken: dict[str, float] = {}
        """Since when launches hold nodes that have not started, by token."""
        self.holds: list[float] = []
        """How long each was held before it was given back."""

    def make(self, launch: Launch) -> None:
        if launch.token not in self.launches:
            super().make(launch)
            self.place()

    def place_later(self, found: Objects) -> None:
        """Room decides, and not time."""

    def place(self) -> None:
        """Give room to what asks for it."""
        for token, found in self.launches.items():
            if self.room and not found.held and not found.placed:
                found.placed, self.taken[token] = True, self.clock.now
                self.news.set()

    def take_back(self, token: str, found: Objects) -> None:
        if found.placed:
            found.placed = False
            self.holds.append(self.clock.now - self.taken.pop(token))

    def draw_run(self, key: object) -> float:
        return 5.0


class BusyPods(NamingPods):
    """Pods that give back what they have when they are held at their start gates."""

    world: BusyWorld

    def state(self) -> dict[str, object]:
        return {**super().state(), "returns_grants": True}

    def _carry_out(self, token: str, found: Objects, event: Event) -> str:
        answer = super()._carry_out(token, found, event)
        if isinstance(event, events.Hold):
            self.world.take_back(token, found)
        elif isinstance(event, events.Release):
            self.world.place()
        return answer


class ContentionStory(AcrossStory):
    """Room comes and goes on both sides, seldom at the same time."""

    worlds: list[BusyWorld]  # type: ignore[assignment]

    def _make_world(self) -> None:
        self.worlds = [BusyWorld(self.clock, self.random) for _ in NAMES]
        self.world = self.worlds[0]
        self.worlds[1].history, self.worlds[1].removed = self.world.history, self.world.removed

    async def _start(self) -> None:
        adapters = [BusyPods(world) for world in self.worlds]
        self.bench.cluster = adapters[0]
        self.bench.others = dict(zip(NAMES, adapters, strict=True))
        await self.bench.start()

    async def _run(self) -> None:
        self._make_world()
        await self._start()
        for world in self.worlds:
            self._let_come(world)
        try:
            await self.bench.submit()
            (job,) = self.jobs
            begun = self.clock.now
            while not job.over:
                assert self.clock.now < begun + 20_000, f"{job.reason} for ever"
                await asyncio.sleep(self.random.choice([1.0, 20.0, 100.0]))
                if self.random.random() < 0.2:
                    await self.bench.kill()
                    await self._start()
                (job,) = self.jobs
                if job.granted_at is None:
                    assert not self.world.history, "a program ran while one side could not start"
                assert not any(world.faults for world in self.worlds)
            assert (job.restarts, [len(task.attempts) for task in job.tasks]) == (0, [1, 1])
            assert all(task.restarts == task.recoveries == 0 for task in job.tasks)
            most = LIMIT + (TROUBLE if any(world.trouble for world in self.worlds) else SLACK)
            dear = self.worlds[1].holds
            assert all(seconds <= most for seconds in dear), dear
        finally:
            await self.bench.controller.close()

    def _let_come(self, world: BusyWorld) -> None:
        """Others leave the cluster for a moment, after a while."""

        def leave() -> None:
            world.room = True
            world.place()
            world.later(self.random.uniform(2.0, 8.0), come)

        def come() -> None:
            world.room = False
            self._let_come(world)

        world.later(self.random.uniform(20.0, 300.0), leave)


@settings(max_examples=count_examples(25), deadline=None)
@given(st.integers(0, 2**32))
def test_two_sides_that_are_seldom_free_come_together_and_hold_nothing_for_long(seed: int) -> None:
    ContentionStory(SPEC, seed).run()
