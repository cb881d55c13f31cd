"""Steps of srun in batch scripts on a real Slurm, as `span squeue -s` and `span sacct` show them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect
from tests.waiting import WaitUntil

SCRIPT = """#!/bin/bash
#SBATCH --nodes=2 --ntasks-per-node=1 --mem=50 --time=5
srun --mem=20 --job-name=first sh -c 'exit 3'
srun --mem=20 --nodes=1 --ntasks=1 --job-name=second sleep 300
"""


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_steps_of_a_script_show_while_they_run_and_after(remote: Span) -> None:
    file = remote.folder / "script.sh"
    file.write_text(SCRIPT)
    job = int(remote.run("sbatch", "--parsable", "-M", "rig", str(file)).stdout.partition(";")[0])
    remote.until(job, "RUNNING")
    running = ("squeue", "--steps", "--noheader", "--format=%i %j")
    remote.wait_until(lambda: f"{job}.1 second" in remote.run(*running).stdout, 20, "the running step")
    # Slurm clears a step away a little after its srun has ended.
    remote.wait_until(lambda: f"{job}.0" not in remote.run(*running).stdout, 20, "the first step to be gone")
    ask = ("sacct", "-nP", "-j", str(job), "--format=JobID,JobName,State,ExitCode,NTasks")
    # The accounting is told of steps a little later.
    for line in (f"{job}.0|first|FAILED|3:0|2", f"{job}.1|second|RUNNING|0:0|1"):
        remote.wait_until(lambda line=line: line in remote.run(*ask).stdout.splitlines(), 20, line)
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")
    # What has ended is told by the accounting, a little later.
    remote.wait_until(lambda: f"{job}.1|second|CANCELLED" in remote.run(*ask).stdout, 20, "the end of the step")
