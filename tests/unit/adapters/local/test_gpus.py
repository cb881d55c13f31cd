"""GPUs of this machine while nvidia-smi fails, as it does until a new driver is loaded."""

from __future__ import annotations

import asyncio
import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.adapters.contract import Accepted, ClusterConfig, Launch, Refusal
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


def make_job(resources: str = "resources: {accelerators: 'Tesla-T4:2'}", number: int = 3) -> Job:
    text = f"name: fit\n{resources}\nrun: 'true'\n"
    job = new_job(number, read_submission(Submission("job_file", text, "f.yaml"), now=1.0), 1.0)
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


def test_a_damaged_record_of_gpus_lets_jobs_wait(tmp_path: Path, programs: Path) -> None:
    root = tmp_path / "root"
    root.mkdir(0o700)
    answer(programs, FAILS)
    for text in ("", "[]", '{"gpus": 7}', '{"gpus": [7]}', "{"):
        (root / "gpus.json").write_text(text)
        assert asyncio.run(load(root)) == (False, None)


async def start_without_gpus(root: Path, programs: Path, then: str) -> tuple[list[Accepted | Refusal], list[str]]:
    """Submit two jobs at the very first start, and again once nvidia-smi has told; answers, and states of GPUs."""
    cluster = LocalCluster(ClusterConfig("local", "local", root=str(root), list_waiting=list))
    launch = Launch("token", make_job())
    answers: list[Accepted | Refusal] = []
    seen = []
    try:
        assert await cluster.admit(launch.job) is None
        seen.append(cluster.plan(launch.job).splitlines()[1])
        answers += await cluster.submit([launch, Launch("other", make_job("", 4))])
        # The next daemon asks anew, also where this one has ended without an answer.
        assert not (root / "gpus.json").exists()
        answer(programs, then)
        while cluster.gpus_unknown:
            await asyncio.sleep(0.01)
        seen.append(str((await cluster.nodes())[0].gpus))
        answers += await cluster.submit([launch])
    finally:
        await cluster.close()
    return answers, seen


@pytest.mark.parametrize(
    ("then", "gpus", "fits"),
    [("echo Tesla T4; echo Tesla T4", 2, True), ("echo Tesla T4", 1, False), ("exit 6", 0, False)],
)
def test_jobs_of_the_first_seconds_wait_until_nvidia_smi_tells(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, then: str, gpus: int, fits: bool
) -> None:
    """Unknown is not none: what fits then is taken, what does not is refused, and other jobs wait for nothing."""
    monkeypatch.setattr("overspan.adapters.local.cluster.GPU_SECONDS", 0.01)
    answer(programs, FAILS)
    root = tmp_path / "root"
    (first, other, again), seen = asyncio.run(start_without_gpus(root, programs, then))
    assert isinstance(first, Refusal) and first.transient
    assert first.waiting_reason == "Resources: nvidia-smi has not told this machine's GPUs yet"
    assert isinstance(other, Accepted)
    assert seen == ["# It would wait: nvidia-smi has not told this machine's GPUs yet", str(gpus)]
    assert isinstance(again, Accepted) if fits else isinstance(again, Refusal) and not again.transient
    assert len(json.loads((root / "gpus.json").read_text())["gpus"]) == gpus


async def wait_without_record(root: Path, programs: Path, then: str) -> list[bool]:
    """Open with a waiting job while nothing tells the GPUs, then let nvidia-smi tell; whether it is refused, each."""
    config = ClusterConfig("local", "local", root=str(root), list_waiting=lambda: [Launch("token", make_job())])
    cluster = LocalCluster(config)
    refused = []
    try:
        for does in (FAILS, then):
            answer(programs, does)
            await cluster.nodes()
            while does == then and cluster.gpus_unknown:
                await asyncio.sleep(0.01)
            seen = await cluster.observe({"3.0": ""}, 0.0)
            refused.append(any(isinstance(event, Refused) for report in seen.reports for event in report.events))
    finally:
        await cluster.close()
    return refused


@pytest.mark.parametrize(("then", "refused"), [("echo Tesla T4; echo Tesla T4", False), ("exit 6", True)])
def test_a_job_that_waits_is_judged_when_the_gpus_are_known(
    tmp_path: Path, programs: Path, monkeypatch: pytest.MonkeyPatch, then: str, refused: bool
) -> None:
    monkeypatch.setattr("overspan.adapters.local.cluster.GPU_SECONDS", 0.01)
    answer(programs, FAILS)
    assert asyncio.run(wait_without_record(tmp_path / "root", programs, then)) == [False, refused]


def test_a_check_says_that_jobs_wait_for_the_first_answer(tmp_path: Path, programs: Path) -> None:
    answer(programs, FAILS)
    (found,) = [each for each in check_machine(str(tmp_path), Settings()) if each.what == "GPUs"]
    assert not found.works and "has never told any; jobs with GPUs wait" in found.seen
