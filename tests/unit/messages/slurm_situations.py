"""Slurm requeues, lacks nodes, hangs, and has arrays taken back; job files of GPUs."""

from __future__ import annotations

import asyncio
from collections import Counter

from tests.fakes.slurm_jobs import Behaviour
from tests.fakes.slurm_transport import Trouble
from tests.fakes.slurm_world import SlurmWorld
from tests.unit.messages.told_texts import Stage, Told, cancel, hear, submit

from overspan.bridge.model.states import State

SCRIPT = "#!/bin/bash\n#SBATCH --requeue\ntrain\n"
GROUP = """
name: pair
execution: parallel
primary_tasks: [trainer]
---
name: trainer
num_nodes: {nodes}
resources: {{cpus: 4}}
run: train
---
name: server
resources: {{cpus: 4}}
run: serve
"""


def requeue(stage: Stage) -> Told:
    """Slurm requeues a job that runs."""

    async def story(world: SlurmWorld) -> Told:
        world.transport.behave = lambda job: Behaviour(None)
        async with world.daemon() as daemon:
            number, _ = await submit(daemon.controller, SCRIPT)
            await daemon.until(number, State.RUNNING)
            world.slurm.requeue(world.slurm.jobs[1])
            await daemon.until(number, State.PENDING)
            await asyncio.sleep(60)
            return await hear(daemon.controller, number)

    return stage.slurm(story)


def lack_a_node(stage: Stage) -> Told:
    """A group needs a node that is down."""

    async def story(world: SlurmWorld) -> Told:
        world.slurm.set_down("node3")
        async with world.daemon() as daemon:
            number, _ = await submit(daemon.controller, GROUP.format(nodes=2))
            await asyncio.sleep(100)
            return await hear(daemon.controller, number)

    return stage.slurm(story)


def never_fit(stage: Stage) -> Told:
    """A group needs more nodes than there are."""

    async def story(world: SlurmWorld) -> Told:
        async with world.daemon() as daemon:
            return (await submit(daemon.controller, GROUP.format(nodes=3)))[1]

    return stage.slurm(story)


def never_fit_a_node(stage: Stage) -> Told:
    """A member of a group is larger than any node."""

    async def story(world: SlurmWorld) -> Told:
        async with world.daemon() as daemon:
            return (await submit(daemon.controller, GROUP.format(nodes=1).replace("cpus: 4", "cpus: 5")))[1]

    return stage.slurm(story)


def hang(stage: Stage) -> Told:
    """An sbatch does not return."""

    async def story(world: SlurmWorld) -> Told:
        async with world.daemon() as daemon:
            world.transport.fail("sbatch", Trouble.HANGS, 1)
            number, _ = await submit(daemon.controller, SCRIPT)
            await asyncio.sleep(65)
            return await hear(daemon.controller, number)

    return stage.slurm(story)


def cancel_an_array(stage: Stage) -> Told:
    """An array of 450 is cancelled while elements of it run."""

    async def story(world: SlurmWorld) -> Told:
        world.transport.behave = lambda job: Behaviour(15)
        async with world.daemon() as daemon:
            number, _ = await submit(daemon.controller, "#!/bin/bash\ntrain\n", "--array=0-449")
            await asyncio.sleep(60)
            said = await cancel(daemon.controller, number)
            started = len(world.slurm.starts)
            await daemon.until(number, State.CANCELLED)
            later = len(world.slurm.starts) - started
            ends = Counter(f"{job.state.value} {job.reason}" for job in await daemon.elements(number))
            return {**await hear(daemon.controller, number), **said, "elements": f"{dict(ends)}, {later} started"}

    return stage.slurm(story)


def name_no_cpus(stage: Stage) -> Told:
    """A job file asks for GPUs and for no CPUs."""

    async def story(world: SlurmWorld) -> Told:
        async with world.daemon() as daemon:
            return (await submit(daemon.controller, "resources: {accelerators: 2}\nrun: train\n"))[1]

    return stage.slurm(story)


def choose_an_alternative(stage: Stage) -> Told:
    """The first of two alternatives never fits where it is to run."""
    text = "resources: {ordered: [{infra: fake, cpus: 900}, {infra: fake, cpus: 2}]}\nrun: train\n"

    async def story(world: SlurmWorld) -> Told:
        async with world.daemon() as daemon:
            number, said = await submit(daemon.controller, text)
            return {**await hear(daemon.controller, number), **said}

    return stage.slurm(story)


def name_an_absent_cloud(stage: Stage) -> Told:
    """A job file names a cloud of which no cluster is configured."""

    async def story(world: SlurmWorld) -> Told:
        async with world.daemon() as daemon:
            return (await submit(daemon.controller, "resources: {cloud: kubernetes}\nrun: train\n"))[1]

    return stage.slurm(story)
