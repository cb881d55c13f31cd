"""An old Slurm, whose commands refuse the options and fields of later releases, through the local transport."""

from __future__ import annotations

import asyncio
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.contract.conformance import Follower, handle_of

from overspan.adapters.contract import ClusterConfig, Launch, LogRequest, Order
from overspan.adapters.slurm import SlurmCluster
from overspan.adapters.slurm.rendering.node_resources import own_cpus
from overspan.bridge.model import events
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State

COMMANDS = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "srun")
PROGRAM = Path(__file__).with_name("old_commands.py")
Story = Callable[[SlurmCluster], Coroutine[Any, Any, None]]


class OldSite:
    """A folder with the commands of 20.02, and jobs for them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        for name in COMMANDS:
            path = folder / "bin" / name
            path.write_text(PROGRAM.read_text().replace("/usr/bin/env python3", f"{sys.executable} -S", 1))
            path.chmod(0o755)

    def play(self, story: Story) -> None:
        settings = {"path": str(self.folder / "bin"), "tick": 0.2}

        async def tell() -> None:
            cluster = SlurmCluster(ClusterConfig("old", "slurm", settings, root=str(self.folder / "root")))
            try:
                async with asyncio.timeout(300):
                    await story(cluster)
            finally:
                await cluster.close()

        asyncio.run(tell())

    def job(self, number: int, run: str) -> Job:
        task = TaskSpec(name="main", run=run, workdir=str(self.folder), resources=Resources(memory_mib=50))
        return new_job(number, JobSpec(name="story", tasks=(task,)), time.time())

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        path = str(self.folder / "bin" / words[0])
        return subprocess.run([path, *words[1:]], capture_output=True, text=True, timeout=120)


@pytest.fixture
def old(tmp_path: Path) -> OldSite:
    return OldSite(tmp_path)


@pytest.mark.parametrize("forgets", [False, True])
def test_jobs_are_submitted_followed_and_told_truly(old: OldSite, forgets: bool) -> None:
    if forgets:
        (old.folder / "forgets").touch()

    async def story(cluster: SlurmCluster) -> None:
        jobs = [old.job(1, "echo said; exit 3"), old.job(2, "true"), old.job(3, "exit 137")]
        handles = [handle_of(answer) for answer in await cluster.submit([Launch(f"t-{job.id}-0", job) for job in jobs])]
        follower = Follower(cluster, dict(zip(handles, jobs, strict=True)))
        await follower.until_state(handles[0], State.FAILED)
        await follower.until_state(handles[1], State.COMPLETED)
        await follower.until_state(handles[2], State.OUT_OF_MEMORY)
        assert follower.jobs[handles[0]].exit_code == 3
        assert (await cluster.logs(LogRequest(handles[0], "main"))).data == b"said\n"
        assert await cluster.order([Order("c", handles[0], events.Cancel(time.time()))]) == [None]
        assert [node.name for node in await cluster.nodes()] == ["n1"]

    old.play(story)


def test_what_an_earlier_daemon_sent_is_found_by_its_comment(old: OldSite) -> None:
    first: list[str] = []

    async def story(cluster: SlurmCluster) -> None:
        job = replace(old.job(1, "true"), submitted_at=0.0 if first else time.time())
        first.append(handle_of((await cluster.submit([Launch("t-1-0", job)]))[0]))

    old.play(story)
    (old.folder / "forgets").touch()
    old.play(story)
    assert first[0] == first[1] and len(list(old.folder.glob("*.json"))) == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("srun --exact true", "unrecognized option '--exact'"),
        ("squeue --only-job-state", "unrecognized option '--only-job-state'"),
        ("sacct --delimiter=x --format=JobID,SubmitLine", 'Invalid field requested: "SubmitLine"'),
    ],
)
def test_the_stand_in_refuses_what_is_new(old: OldSite, words: str, said: str) -> None:
    done = old.run(*shlex.split(words))
    assert done.returncode == 1 and said in done.stderr


@pytest.mark.parametrize(
    ("version", "words"),
    [
        ((20, 2, 7), "--exclusive"),
        ((20, 11), "--exclusive"),
        ((20, 11, 2), "--exclusive"),
        ((20, 11, 3), "--exact"),
        ((22, 5, 8), "--exact"),
        ((), "--exact"),
    ],
)
def test_a_step_gets_its_own_cpus_by_the_releases_own_option(
    old: OldSite, version: tuple[int, ...], words: str
) -> None:
    assert own_cpus(version) == words
    if version < (20, 11) and version:
        assert old.run("srun", own_cpus(version), "--ntasks=1", "true").returncode == 0
