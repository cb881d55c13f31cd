"""The local cluster with real processes: groups, launches, the check, and folders that cannot be used."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path

import pytest
from tests.contract.conformance import start
from tests.system.local.stories import make_job, open_on, play, submit

from overspan.adapters.contract import LogRequest
from overspan.adapters.local import LocalCluster
from overspan.adapters.local.files import launch_files
from overspan.adapters.local.launches import launches
from overspan.bridge.model.errors import Unreachable
from overspan.bridge.model.job import new_job
from overspan.bridge.model.resources import Gpus, Resources
from overspan.bridge.model.spec import JobSpec, Need, NeedKind, Origin, TaskSpec
from overspan.bridge.model.states import State


def test_a_full_disk_keeps_waiting(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    full = True
    write = launch_files.write_document

    def write_if_there_is_room(path: str, document: launch_files.Document) -> None:
        if full and blocked in path:
            raise OSError(errno.ENOSPC, "No space left on device")
        write(path, document)

    monkeypatch.setattr(launches, "write_document", write_if_there_is_room)
    blocked = "plan."

    async def story(cluster: LocalCluster) -> None:
        nonlocal blocked, full
        follower = await submit(cluster, make_job(root, 1, "exit 0"))
        for name in ("plan.", "grant."):
            blocked = name
            await follower.step(1.5)
            assert follower.jobs["1.0"].state is State.PENDING
            assert follower.jobs["1.0"].reason == "Resources: No space left on device"
            assert not list((root / "tickets").iterdir())
        full = False
        await follower.until_state("1.0", State.COMPLETED)

    play(open_on(root), story)


def test_a_group_finds_its_members_and_devices(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        server = TaskSpec("server", run="sleep 300", primary=False, resources=Resources(cpus=0.5, gpus=(Gpus(1),)))
        text = 'echo "$OVERSPAN_SERVER_ADDRS $CUDA_VISIBLE_DEVICES"; getent hosts server-0.duo'
        needs = (Need("server", NeedKind.STARTED),)
        client = TaskSpec("client", run=text, needs=needs, resources=Resources(cpus=0.5, gpus=(Gpus(1),)))
        spec = JobSpec("duo", (server, client), group=True, origin=Origin(directory=str(root.parent)))
        follower = await submit(cluster, new_job(1, spec, 1.0))
        await follower.until_state("1.0", State.COMPLETED)
        placed = {place.task: place for place in follower.jobs["1.0"].placements}
        assert sorted(place.gpus for place in placed.values()) == [(0,), (1,)]
        lines = (await cluster.logs(LogRequest("1.0", "client"))).data.decode().splitlines()
        assert lines[0] == f"{placed['server'].address} {placed['client'].gpus[0]}"
        method = json.loads((root / "runs" / "1" / "grant.0.json").read_text())["isolation"]
        if method != "env":
            assert lines[1].split()[0] == placed["server"].address

    play(open_on(root, gpus=2), story)


def test_a_job_is_launched_again_beside_its_earlier_launch(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        job = make_job(root, 1, "echo run; exit 0")
        handle, follower = await start(cluster, job)
        await follower.until_state(handle, State.COMPLETED)
        again = replace(make_job(root, 1, "echo again; exit 0"), launch=1)
        follower = await submit(cluster, again)
        await follower.until_state("1.1", State.COMPLETED)
        kept = [path.name for path in sorted((root / "runs" / "1").glob("journal.*"))]
        assert kept == ["journal.0.jsonl", "journal.1.jsonl"]

    play(open_on(root), story)


def test_a_root_that_cannot_be_used_is_unreachable(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    async def story(cluster: LocalCluster) -> None:
        for _ in range(2):
            with pytest.raises(Unreachable, match="cannot be used"):
                await cluster.observe({}, 0.0)

    play(open_on(tmp_path / "file" / "root"), story)


def test_a_closed_cluster_says_so(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        await cluster.close()
        with pytest.raises(Unreachable, match="closed"):
            await cluster.nodes()

    play(open_on(root), story)


def test_it_says_what_works_here(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        found = {finding.what: finding for finding in await cluster.check()}
        assert found["state folder"].works and found["supervisor's python"].works and found["loopback addresses"].works
        assert {"names", "user namespaces", "nss_wrapper", "CPUs and memory", "GPUs", "cgroup", "free disk"} <= set(
            found
        )

    play(open_on(root), story)


def test_a_missing_python_is_found_by_the_check(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        found = {finding.what: finding for finding in await cluster.check()}
        assert not found["supervisor's python"].works
        assert "Python 3.9" in found["supervisor's python"].remedy

    play(open_on(root, python="/nonexistent/python3"), story)
