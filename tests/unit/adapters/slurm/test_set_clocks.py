"""The clock of the daemon's machine is set while it watches jobs on Slurm: waits follow the time that passes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_world import SlurmWorld

from overspan.bridge.controller.orders.requests import CancelRequest
from overspan.bridge.model import events
from overspan.bridge.model.states import State

SCRIPT = "#!/bin/bash\ntrain\n"
GROUP = """\
name: g
execution: parallel
---
name: a
run: train
---
name: b
run: serve
"""
STUBBORN = Behaviour(None, on_term=None)
JUMPS = (-21600.0, 10800.0)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmWorld:
    return SlurmWorld(tmp_path, monkeypatch)


@pytest.mark.parametrize("jump", JUMPS)
def test_what_others_hold_and_release_is_seen(world: SlurmWorld, jump: float) -> None:
    """After an order of our own, which is newer than all that was seen before it and older than all after it."""

    async def story() -> None:
        for node in [*world.slurm.nodes]:
            world.slurm.set_down(node)
        async with world.daemon() as daemon:
            number = await daemon.submit(SCRIPT, "script")
            await daemon.controller.orders.give(str(number), lambda at, task: events.Hold(at, "ada"))
            job = world.slurm.jobs[1]
            for held in (False, True):
                world.set_by += jump
                await asyncio.sleep(1)
                world.slurm.hold(job, "user") if held else world.slurm.release(job)
                await asyncio.sleep(40)
                assert (await daemon.job(number)).held is held

    world.play(story())


@pytest.mark.parametrize("jump", JUMPS)
def test_a_cancelled_job_has_its_grace_and_no_more(world: SlurmWorld, jump: float) -> None:
    world.transport.programs = lambda task: STUBBORN
    world.transport.behave = lambda job: STUBBORN

    async def story() -> None:
        async with world.daemon() as daemon:
            number = await daemon.submit(GROUP)
            await daemon.until(number, State.RUNNING)
            await daemon.controller.orders.cancel(CancelRequest((str(number),), by="ada"))
            asked = world.loop.time()
            await asyncio.sleep(5)
            world.set_by += jump
            while (await daemon.job(number)).state is not State.CANCELLED:
                await asyncio.sleep(0.5)
                assert world.loop.time() - asked < 300
            assert world.loop.time() - asked > 25

    world.play(story())
