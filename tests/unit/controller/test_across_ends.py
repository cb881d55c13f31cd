"""The end of a group over two clusters: what the primary's end means on the other one."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.controller import fake_pods
from tests.unit.controller.across_stories import AcrossStory
from tests.unit.controller.fake_pods import Key

from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State

DELAY, CALLS = 60, 20.0
"""The delay of the file, and seconds that the calls of the fake clusters take at most."""
SPEC = JobSpec(
    "g",
    (
        TaskSpec("trainer", run="true"),
        TaskSpec("server", run="true", primary=False, termination_delay=DELAY, grace_period=5),
    ),
    group=True,
)
"""The server is on the other cluster."""


class EndStory(AcrossStory):
    """A trainer that ends well, and a server that would go on."""

    def _make_world(self) -> None:
        super()._make_world()
        for world in self.worlds:
            world.trouble = 0.0
            world.draw_run = self.draw_run  # type: ignore[method-assign]

    def draw_run(self, key: Key) -> float:
        return 30.0 if key.task == "trainer" else 50_000.0

    async def _run(self) -> None:
        self._make_world()
        await self._start()
        try:
            await self.bench.submit()
            for _ in range(300):
                await asyncio.sleep(1.0)
                if self.jobs[0].over:
                    break
        finally:
            await self.bench.controller.close()


@pytest.mark.parametrize("seed", range(5))
def test_an_auxiliary_on_the_other_cluster_has_its_delay_after_the_primary_ended(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fake_pods, "EXITS", (0,))
    story = EndStory(SPEC, seed)
    story.run()
    (job,) = story.jobs
    assert job.state is State.COMPLETED
    ends = {key.task: pod.end[0] for key, pod in story.world.history.items() if pod.end is not None}
    assert DELAY <= ends["server"] - ends["trainer"] <= DELAY + SPEC.task("server").grace_period + CALLS
