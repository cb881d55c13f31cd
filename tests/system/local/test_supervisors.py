"""Supervisors of the local cluster: what survives whom, and what is started again."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.contract.conformance import Follower
from tests.system.local.machine import end_supervisors, list_supervisors
from tests.system.local.stories import list_pids, make_job, make_launches, open_on, order_of, play, submit

from overspan.adapters.contract import Launch, LogRequest
from overspan.adapters.local import LocalCluster
from overspan.adapters.local.supervisors import supervisor_names, supervisors
from overspan.bridge.model.events import (
    Cancel,
    LaunchLost,
    SetTime,
)
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import kernel


def test_a_killed_supervisor_is_started_again(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        groups = [make_job(root, number, group=True) for number in (2, 3)]
        follower = await submit(cluster, make_job(root, 1), *groups)
        for handle in ("1.0", "2.0", "3.0"):
            await follower.until_state(handle, State.RUNNING)
        before = list_pids(root)
        assert len(before) == 2
        for process in list_supervisors(root):
            assert kernel.signal_process(process, signal.SIGKILL)
        await follower.until(lambda: len(set(list_pids(root)) - set(before)) == 2, "new supervisors")
        (root.parent / "go").touch()
        for handle in ("1.0", "2.0", "3.0"):
            await follower.until_state(handle, State.FAILED)
            job = follower.jobs[handle]
            assert (job.exit_code, len(job.tasks[0].attempts)) == (5, 1)
            assert (await cluster.logs(LogRequest(handle, "main"))).data == b"went\n"

    play(open_on(root, cpus=3), story)


def test_a_supervisor_serves_few_groups_at_a_time(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_names, "_LIVE_GROUPS", 2)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, *(make_job(root, number, group=True) for number in (1, 2, 3)))
        for handle in ("1.0", "2.0", "3.0"):
            await follower.until_state(handle, State.RUNNING)
        assert len(list_pids(root)) == 2
        before = list_pids(root)
        await cluster.order([order_of("c", "1.0", Cancel(time.time()))])
        await follower.until_state("1.0", State.CANCELLED)
        # The place that is free is taken before another one is started.
        follower.jobs["4.0"], follower.cursors["4.0"], follower.events["4.0"] = make_job(root, 4, group=True), "", []
        await cluster.submit([Launch("token-4", follower.jobs["4.0"])])
        await follower.until_state("4.0", State.RUNNING)
        assert list_pids(root) == before
        (root.parent / "go").touch()
        for handle in ("2.0", "3.0", "4.0"):
            await follower.until_state(handle, State.FAILED)

    play(open_on(root, cpus=3), story)


def test_supervisors_of_an_earlier_daemon_are_found(root: Path) -> None:
    known: list[int] = []

    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        await follower.until_state("1.0", State.RUNNING)
        await follower.until_state("2.0", State.RUNNING)
        known.extend(list_pids(root))

    async def second(cluster: LocalCluster) -> None:
        jobs = {"1.0": make_job(root, 1), "2.0": make_job(root, 2, group=True)}
        follower = Follower(cluster, jobs)
        await follower.until_state("2.0", State.RUNNING)
        assert list_pids(root) == known
        assert (await cluster.nodes())[0].cpus_used == 2.0
        await cluster.order([order_of("c", "2.0", Cancel(time.time()))])
        await follower.until_state("2.0", State.CANCELLED)
        # A single job of the new daemon goes to the same supervisor.
        follower.jobs["3.0"] = make_job(root, 3, "exit 0")
        await cluster.submit([Launch("token-3", follower.jobs["3.0"])])
        follower.cursors["3.0"], follower.events["3.0"] = "", []
        await follower.until_state("3.0", State.COMPLETED)
        await follower.until(lambda: not (root / "hosts" / "groups-0").exists(), "the groups' folder is removed")
        # While the first job keeps it: a supervisor that has nothing to do leaves after a time.
        assert len(list_supervisors(root)) == 1
        (root.parent / "go").touch()
        await follower.until_state("1.0", State.FAILED)

    play(open_on(root, cpus=2), first)
    play(open_on(root, cpus=2), second)


HARD_OF_HEARING = """
import sys
sys.path.insert(0, sys.argv[-3])
from overspan.bridge.runtime.local import forkserver, supervisor
supervisor.LOOK_SECONDS = 3600.0
sys.exit(forkserver.main())
"""


def test_orders_are_carried_out_at_once(root: Path) -> None:
    """Supervisors read their orders every second in any case; these do so only when the signal tells them."""
    python = root.parent / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(HARD_OF_HEARING)} "$@"\n')
    python.chmod(0o755)

    async def give(cluster: LocalCluster, first: int) -> None:
        follower = Follower(cluster, {"1.0": make_job(root, 1)})
        await follower.until_state("1.0", State.RUNNING)
        for limit in range(first, first + 5):
            await cluster.order([order_of(f"t{limit}", "1.0", SetTime(time.time(), limit))])
            await follower.until(lambda limit=limit: follower.jobs["1.0"].tasks[0].time == limit, "the limit")  # type: ignore[misc]

    async def first(cluster: LocalCluster) -> None:
        await submit(cluster, make_job(root, 1))
        await give(cluster, 1000)

    async def second(cluster: LocalCluster) -> None:
        await give(cluster, 2000)

    play(open_on(root, python=str(python)), first)
    play(open_on(root, python=str(python)), second)


def test_a_supervisor_that_died_with_the_daemon_is_replaced(root: Path) -> None:
    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)

    async def second(cluster: LocalCluster) -> None:
        follower = Follower(cluster, {"1.0": make_job(root, 1)})
        (root.parent / "go").touch()
        await follower.until_state("1.0", State.FAILED)
        assert follower.jobs["1.0"].exit_code == 5

    play(open_on(root), first)
    for process in list_supervisors(root):
        kernel.signal_process(process, signal.SIGKILL)
    play(open_on(root), second)


def test_after_a_reboot_what_ran_is_lost_and_what_waited_runs(root: Path) -> None:
    async def first(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2))
        await follower.until_state("1.0", State.RUNNING)

    async def second(cluster: LocalCluster) -> None:
        follower = Follower(cluster, {"1.0": make_job(root, 1), "2.0": make_job(root, 2)})
        await follower.until(lambda: any(isinstance(event, LaunchLost) for event in follower.events["1.0"]), "1 lost")
        assert follower.jobs["1.0"].launch == 1
        await follower.until_state("2.0", State.FAILED)

    play(open_on(root), first)
    end_supervisors(root)
    grant = root / "runs" / "1" / "grant.0.json"
    grant.write_text(json.dumps(json.loads(grant.read_text()) | {"boot_id": "another"}))
    (root.parent / "go").touch()
    play(open_on(root, make_launches(make_job(root, 1), make_job(root, 2))), second)


def test_a_lost_wake_up_costs_a_second(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        (root / "wake").unlink()
        (root.parent / "go").touch()
        began = time.monotonic()
        await follower.until_state("1.0", State.FAILED)
        assert time.monotonic() - began < 60

    play(open_on(root), story)


def test_a_supervisor_that_never_starts_is_given_up(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisors, "_FIRST_DELAY", 0.001)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        for handle in ("1.0", "2.0"):
            await follower.until_state(handle, State.FAILED)
            assert follower.jobs[handle].reason == "JobLaunchFailure"
        await follower.until(lambda: not list((root / "tickets").iterdir()), "everything is given back")
        assert (await cluster.nodes())[0].cpus_used == 0

    play(open_on(root, cpus=2, python="/nonexistent/python3"), story)


def test_without_pidfds_ends_are_found_by_looking(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernel, "open_pidfd", lambda pid: None)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        (killed,) = list_pids(root)
        os.kill(killed, signal.SIGKILL)
        await follower.until(lambda: list_pids(root) not in ([], [killed]), "another supervisor")
        await cluster.order([order_of("c", "1.0", Cancel(time.time()))])
        await follower.until_state("1.0", State.CANCELLED)

    play(open_on(root), story)
