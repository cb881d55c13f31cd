"""GPUs of this machine while nvidia-smi fails, as it does until a new driver is loaded."""

from __future__ import annotations

import asyncio
import os
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.adapters.contract import ClusterConfig, Launch, Refusal
from overspan.adapters.local.checking import check_machine
from overspan.adapters.local.cluster import LocalCluster
from overspan.adapters.local.settings import Settings
from overspan.bridge.model.events import Refused
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.readers.submission import Submission, read_submission

FAILS = "echo NVIDIA-SMI has failed because it could not communicate with the NVIDIA driver.; exit 9"


def answer(folder: Path, does: str) -> None:
    program = folder / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{does}\n")
    program.chmod(0o700)


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return folder


def make_job() -> Job:
    text = "name: fit\nresources: {accelerators: 'Tesla-T4:2'}\nrun: 'true'\n"
    job = new_job(3, read_submission(Submission("job_file", text, "f.yaml"), now=1.0), 1.0)
    return replace(job, held=True)


async def load(root: Path) -> tuple[bool, Refusal | None]:
    """Open the cluster with a waiting job: whether the job was refused, and what another one like it is told."""
    launch = Launch("token", make_job())
    config = ClusterConfig("local", "local", root=str(root), list_waiting=lambda: [launch])
    cluster = LocalCluster(config)
    try:
        await cluster.nodes()
        seen = await cluster.observe({"3.0": ""}, 0.0)
        refused = any(isinstance(event, Refused) for report in seen.reports for event in report.events)
        return refused, await cluster.admit(make_job())
    finally:
        await cluster.close()


def test_jobs_that_wait_for_gpus_outlive_a_driver_that_does_not_answer(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "root"
    answer(programs, "echo Tesla T4; echo Tesla T4")
    assert asyncio.run(load(root)) == (False, None)
    answer(programs, FAILS)
    assert asyncio.run(load(root)) == (False, None)
    (found,) = [each for each in check_machine(str(root), Settings()) if each.what == "GPUs"]
    assert not found.works and "as when it last answered: 2 Tesla-T4" in found.seen


@pytest.mark.parametrize("does", ["echo No devices were found; exit 6", None])
def test_gpus_that_are_gone_are_not_waited_for(tmp_path: Path, programs: Path, does: str | None) -> None:
    root = tmp_path / "root"
    answer(programs, "echo Tesla T4; echo Tesla T4")
    assert asyncio.run(load(root)) == (False, None)
    if does is None:
        (programs / "nvidia-smi").unlink()
    else:
        answer(programs, does)
    refused, told = asyncio.run(load(root))
    assert refused and told is not None and "2 Tesla-T4 GPUs are wanted" in told.remedy


def test_a_damaged_record_of_gpus_is_none(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(0o700)
    answer(programs, FAILS)
    for text in ("", "[]", '{"gpus": 7}', '{"gpus": [7]}', "{"):
        (root / "gpus.json").write_text(text)
        refused, told = asyncio.run(load(root))
        assert refused and told is not None
