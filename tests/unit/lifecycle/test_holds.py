"""A hold outlives the loss of the launch that waits."""

from __future__ import annotations

from tests.unit.lifecycle.world import World, group, lost, primary

from overspan.bridge.lifecycle.eligibility import judge
from overspan.bridge.model import events
from overspan.bridge.model.causes import Cause


def test_a_held_job_whose_launch_is_lost_stays_held() -> None:
    world = World(group(primary()))
    world.order(events.Hold(world.now))
    world.order(lost(world, Cause.NODE))
    assert world.job.launch == 1
    assert world.job.held and world.job.reason == "JobHeldUser"
    assert not judge(world.job, world.now + 3600).now
