"""A real Slurm that is reached over ssh, and jobs for it."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conformance import Follower, handle_of
from tests.rigs.plugin import rig_or_skip, slurm_rig
from tests.rigs.reach import SshAccess, open_access
from tests.rigs.slurm import SlurmRig, Variant
from tests.system.conftest import Span
from tests.waiting import WaitUntil

from overspan.adapters.contract import ClusterConfig, Launch
from overspan.adapters.slurm import SlurmCluster
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec

__all__ = ["slurm_rig"]

Story = Callable[[SlurmCluster], Coroutine[Any, Any, None]]


class Site:
    """A cluster to tell stories on; each job and token is new."""

    def __init__(self, access: SshAccess) -> None:
        self.access = access
        self.rig = access.rig
        self._ids = itertools.count(int(time.time()) % 100_000 * 100)

    def open(self, **settings: Any) -> SlurmCluster:
        """The cluster, opened once more."""
        return SlurmCluster(ClusterConfig("rig", "slurm", {"tick": 0.5, **self.access.settings, **settings}))

    def play(self, story: Story, **settings: Any) -> None:
        """Tell a story with an adapter of its own."""

        async def tell() -> None:
            cluster = self.open(**settings)
            try:
                async with asyncio.timeout(600):
                    await story(cluster)
            finally:
                await cluster.close()

        asyncio.run(tell())

    def job(self, run: str, grace: int = 30, **changes: Any) -> Job:
        """A small job."""
        task = TaskSpec(name="main", run=run, resources=Resources(memory_mib=50), grace_period=grace)
        job = new_job(next(self._ids), JobSpec(name="story", tasks=(task,)), time.time())
        return replace(job, spec=replace(job.spec, **changes), begin=changes.get("begin"))

    async def start(self, cluster: SlurmCluster, job: Job) -> tuple[str, Follower]:
        """Launch and follow a job."""
        handle = handle_of((await cluster.submit([Launch(f"site-{job.id}-0", job)]))[0])
        return handle, Follower(cluster, {handle: job})

    def slurm(self, *words: str) -> str:
        """What a command says to the user there."""
        done = self.rig.run(list(words))
        assert done.rc == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def site(slurm_rig: SlurmRig, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """The rig as a site; its jobs are ended afterwards."""
    with open_access(slurm_rig, tmp_path_factory.mktemp("ssh")) as access:
        yield Site(access)
        slurm_rig.run(["scancel", "--user=researcher"])


@pytest.fixture(scope="module")
def unshared_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose machines have homes of their own: nothing is shared."""
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("unshared", shared_home=False)) as rig, open_access(rig, folder) as access:
        yield Site(access)


@pytest.fixture
def unshared(unshared_site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    """A daemon outside that reaches it over ssh."""
    span = Span(tmp_path, wait_until)
    settings = {"kind": "slurm", "tick": 0.5, "shared_root": False, **unshared_site.access.settings}
    span.config.write_text(json.dumps({"clusters": {"rig": settings}}))
    yield span
    span.close()
