"""A command that hangs on the login node, over the one ssh connection that all calls share."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator

import pytest
from tests.contract.conformance import handle_of
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate

from overspan.adapters.contract import Launch, SomeUnanswered
from overspan.adapters.slurm import SlurmCluster
from overspan.bridge.model.states import State

FOLDER = "/home/researcher/slow"
# It submits, and then says nothing and does not end.
SBATCH = f'#!/bin/sh\n/usr/bin/sbatch "$@" >>{FOLDER}/said\n[ -e {FOLDER}/mended ] || exec sleep 300\n'


@pytest.fixture
def slow(site: Site) -> Iterator[str]:
    """A folder with an sbatch that hangs; the commands in there come first."""
    assert site.rig.run(["mkdir", "-p", FOLDER]).rc == 0
    site.rig.put(f"{FOLDER}/sbatch", SBATCH)
    yield FOLDER
    site.rig.run(["pkill", "-x", "-f", "sleep 300"])
    site.rig.run(["rm", "-rf", FOLDER])


@pytest.mark.parametrize("transport", ["ssh", "paramiko"])
def test_an_sbatch_that_hangs_is_told_delays_nobody_and_has_submitted_once(
    site: Site, slow: str, transport: str
) -> None:
    if transport == "paramiko":
        pytest.importorskip("paramiko")

    async def story(cluster: SlurmCluster) -> None:
        plain = site.open(transport=transport)
        try:
            gate = Gate(site)
            handle, follower = await site.start(plain, site.job(f"{gate.wait}; exit 4"))
        finally:
            await plain.close()
        follower.adapter = cluster
        await follower.until_state(handle, State.RUNNING)
        job = site.job("true")
        launch = Launch(f"site-{job.id}-0", job)
        hanging = asyncio.ensure_future(cluster.submit([launch]))
        await follower.until(lambda: f"site-{job.id}-0" in natives(site), "Slurm has it")
        gate.open()
        # Others go on while it hangs, and after.
        await follower.until_state(handle, State.FAILED)
        with pytest.raises(SomeUnanswered):
            await hanging
        assert "sbatch has not answered within" in cluster.troubles()[0]
        observation = await cluster.observe({handle: ""}, 0)
        assert "sbatch has not answered within" in observation.trouble
        while True:
            try:
                (answer,) = await cluster.submit([launch])
                break
            except SomeUnanswered:
                await asyncio.sleep(0.2)
        assert handle_of(answer) and natives(site).count(f"site-{job.id}-") == 1

    began = time.monotonic()
    site.play(story, path=slow, timeout=8, transport=transport)
    # Nothing has waited for the end of the command.
    assert time.monotonic() - began < 200


def natives(site: Site) -> str:
    return site.slurm("squeue", "-h", "-t", "all", "-o", "%A %k")
