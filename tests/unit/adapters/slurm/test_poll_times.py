"""How soon news of a single job are known, and how many questions that takes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from statistics import median

import pytest
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_world import Daemon, SlurmWorld

from overspan.adapters.slurm.observation.poll_times import BURST, LaunchAge, QueryBudget
from overspan.bridge.model.states import State

SCRIPT = "#!/bin/bash\ntrain\n"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


class TestYouth:
    def test_one_that_waits_is_looked_at_three_times_soon(self) -> None:
        youth, looks = LaunchAge(100.0), [100.0]
        while (wish := youth.find_next_look(looks[-1])) is not None:
            looks.append(wish)
        assert looks == [100.0, 101.0, 102.0, 104.0]

    def test_one_that_runs_is_looked_at_for_a_minute(self) -> None:
        youth = LaunchAge(100.0, 110.0)
        assert youth.find_next_look(112.0) == 117.0
        assert youth.find_next_look(166.0) is None

    def test_one_that_was_ordered_about_is_looked_at_soon(self) -> None:
        assert LaunchAge(0.0, None, 100.5).find_next_look(100.0) == 101.5
        assert LaunchAge(0.0, 10.0, 100.5).find_next_look(103.0) == 104.5


class TestBudget:
    @pytest.mark.parametrize("begin", [0.0, 1000.0])
    def test_no_minute_has_more_than_twelve_questions(self, begin: float) -> None:
        budget, asked, now = QueryBudget(), list[float](), begin
        while now < begin + 600:
            now = max(now, budget.find_time(now))
            budget.take(now)
            asked.append(now)
        assert asked[: int(BURST)] == [begin] * int(BURST)
        assert max(sum(at <= other < at + 60 for other in asked) for at in asked) <= 12

    def test_questions_of_short_ticks_only_use_it_up(self) -> None:
        budget = QueryBudget()
        for second in range(100):
            budget.take(float(second))
        assert 5.0 < budget.find_time(100.0) - 100.0 < 7.0


async def follow(world: SlurmWorld, daemon: Daemon, number: int, state: State) -> float:
    """When the daemon knows of a state."""
    await daemon.until(number, state)
    return world.now()


def test_a_start_is_known_in_two_seconds_and_a_soon_end_in_a_few(world: SlurmWorld) -> None:
    starts, ends = list[float](), list[float]()

    async def story() -> None:
        async with world.daemon() as daemon:
            for length in (3, 8, 14, 21, 29, 38, 47):
                world.transport.behave = lambda job, length=length: Behaviour(length)  # type: ignore[misc]
                await asyncio.sleep(50)
                began = world.now()
                number = await daemon.submit(SCRIPT, "script")
                seen = await follow(world, daemon, number, State.RUNNING)
                started = next(at for at, name in reversed(world.slurm.starts))
                starts.append(seen - max(started, began))
                ends.append(await follow(world, daemon, number, State.COMPLETED) - started - length)

    world.play(story())
    assert median(starts) <= 2.0, starts
    assert median(ends) <= 5.0, ends


def test_however_many_jobs_there_are_slurm_is_asked_twelve_times_a_minute(world: SlurmWorld) -> None:
    world.transport.behave = lambda job: Behaviour(17)

    def count() -> int:
        return sum("squeue" in " ".join(words) for words in world.transport.asked)

    async def story() -> None:
        async with world.daemon() as daemon:
            begun = count()
            for _ in range(60):
                await daemon.submit(SCRIPT, "script")
                await asyncio.sleep(2)
            assert 18 <= count() - begun <= 25
            await asyncio.sleep(120)
            begun = count()
            await asyncio.sleep(120)
            # Nothing is asked of nobody.
            assert count() == begun

    world.play(story())
