"""A wall clock that is set while a job runs: delays and limits count the time that passes."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.unit.lifecycle.world import World, auxiliary, group, kinds, primary

from overspan.bridge.lifecycle.reduction import reduce
from overspan.bridge.lifecycle.timeline import transitions
from overspan.bridge.model import events
from overspan.bridge.model.spec import RetryPolicy
from overspan.bridge.model.states import State

HOUR = 3600


def set_clock(world: World, seconds: float) -> list[object]:
    """Set the clock; gives what is decided then."""
    world.now += seconds
    assert world.apply(events.ClockSet(world.now, seconds))
    return list(world.decide())


@pytest.mark.parametrize("jump", [3 * HOUR, -6 * HOUR])
class TestJumps:
    def test_a_limit_counts_the_time_that_has_passed(self, jump: int) -> None:
        world = World(group(primary(time=100), auxiliary())).run()
        world.advance(50)
        assert set_clock(world, jump) == []
        assert kinds(world.advance(49)) == []
        assert kinds(world.advance(1)) == ["Terminate trainer"]

    def test_a_delay_and_a_grace_period_go_on(self, jump: int) -> None:
        world = World(group(primary(), auxiliary(termination_delay=60, grace_period=20))).run()
        world.end("trainer")
        world.advance(10)
        assert set_clock(world, jump) == []
        assert kinds(world.advance(49)) == []
        assert kinds(world.advance(1)) == ["Terminate server"]
        assert set_clock(world, jump) == []
        assert kinds(world.advance(19)) == []
        assert kinds(world.advance(1)) == ["Kill server"]

    def test_a_backoff_goes_on(self, jump: int) -> None:
        world = World(group(primary(retry=RetryPolicy(max_restarts_on_errors=1)))).run()
        world.advance(5)
        world.end("trainer", 1)
        due = world.job.task("trainer").next_start
        assert due is not None
        world.advance(0.5)
        assert set_clock(world, jump) == []
        assert world.job.task("trainer").next_start == due + jump
        assert world.job.task("trainer").attempts[0].ended_at == world.now - 0.5

    def test_a_job_that_waits_has_nothing_to_move(self, jump: int) -> None:
        world = World(group(primary()))
        before = world.job
        after = reduce(before, events.ClockSet(world.now + jump, jump))
        assert after == replace(before, late=1)


def test_the_end_of_a_primary_still_decides_the_exit_code() -> None:
    world = World(group(primary(), auxiliary())).run()
    world.end("trainer", 3)
    set_clock(world, HOUR)
    world.stop_all()
    assert (world.job.state, world.job.exit_code) == (State.FAILED, 3)


def test_what_is_to_end_at_once_does_so_by_any_clock() -> None:
    world = World(group(primary(), auxiliary(termination_delay=60))).run()
    world.end("trainer")
    # The supervisor was dead while the clock was set: nobody could tell.
    world.now -= 6 * HOUR
    assert world.decide() == []
    assert world.apply(events.Cancel(world.now))
    assert kinds(world.decide()) == ["Terminate server"]


def test_the_timeline_says_it() -> None:
    job = World(group(primary())).run().job
    event = events.ClockSet(9e9, -21_600.0)
    (row,) = transitions(job, reduce(job, event), event)
    assert row.text == "the machine's clock was set back by 21600 s; limits and delays go on unchanged"
