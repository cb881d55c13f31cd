"""What jobs on Slurm could not send, told and removed by the application on the login node."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

import pytest

from overspan.adapters.abilities import EndedLaunch
from overspan.adapters.slurm.commands.queries import Queries, Site
from overspan.adapters.slurm.files.unsent import SlurmUnsent
from overspan.adapters.slurm.groups.handles import GroupPart, make_group_handle
from overspan.adapters.slurm.settings import Settings
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.bridge.model.errors import Conflict
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec


class HomeQueries(Queries):
    """Queries of a site that is this machine."""

    async def site(self) -> Site:
        return Site((22, 5, 8), {}, "ada", os.environ["HOME"])


def open_unsent(folder: Path, python: str = sys.executable) -> SlurmUnsent:
    transport = LocalTransport()
    settings = Settings(python=python, data_keep=3 * 86400)
    return SlurmUnsent(HomeQueries(transport, 60.0), transport, settings, str(folder / "root"))


def leave(folder: Path) -> EndedLaunch:
    """A job that has left a file in its run directory."""
    job: Job = new_job(7, JobSpec("x", (TaskSpec("x", run="true"),)), 0.0)
    run = folder / "runs/in[1]-7"
    mount = run / "data/7/0123"
    (mount / "files").mkdir(parents=True)
    facts = {"url": "s3://lab/run", "mode": "MOUNT_CACHED", "store": "s3", "markers": []}
    (mount / "mount.json").write_text(json.dumps(facts))
    (mount / "files/a").write_bytes(b"123")
    return EndedLaunch(job, str(make_group_handle(job, str(run), [GroupPart(4)])))


def test_it_is_told_and_removed(tmp_path: Path) -> None:
    unsent, launch = open_unsent(tmp_path), leave(tmp_path)
    assert unsent.seconds == 3 * 86400
    single = EndedLaunch(launch.job, "4:0")
    (found,) = asyncio.run(unsent.list_unsent([single, launch])).found
    assert (found.job, found.size, found.state) == (7, 3, "left")
    assert asyncio.run(unsent.remove_unsent([launch])).found == (found,)
    assert not (tmp_path / "runs/in[1]-7/data/7").exists() and (tmp_path / "runs/in[1]-7").exists()
    assert asyncio.run(unsent.list_unsent([launch])) == ((), ())


def test_what_cannot_be_done_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(Conflict, match=r"the login node could not look at what jobs have left: .*nowhere"):
        asyncio.run(open_unsent(tmp_path, "/nowhere/python3").list_unsent([leave(tmp_path)]))


def test_a_root_that_is_not_mounted_has_lost_nothing(tmp_path: Path) -> None:
    unsent, launch = open_unsent(tmp_path), leave(tmp_path)
    runs = tmp_path / "runs"
    runs.rename(tmp_path / "elsewhere")
    listing = asyncio.run(unsent.remove_unsent([launch]))
    assert [job for job, text in listing.errors if "is its file system mounted?" in text] == [7]
    (tmp_path / "elsewhere").rename(runs)
    assert [each.files for each in asyncio.run(unsent.remove_unsent([launch])).found] == [1]
