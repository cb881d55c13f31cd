"""The process that supervisors are forked from: its death ends nothing, loses no launch and doubles none."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest
from tests.contract.conformance import Follower
from tests.system.local.machine import list_fork_servers, list_supervisors
from tests.system.local.stories import list_pids, make_job, open_on, order_of, play, reasons, submit

from overspan.adapters.contract import Launch
from overspan.adapters.local import LocalCluster
from overspan.adapters.local.supervisors import forkserver, supervisor_names
from overspan.bridge.model.events import Cancel
from overspan.bridge.model.job import Job
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.zip_application import build_archive

# Kilobytes that a supervisor has changed. Measured: 3900 with CPython 3.11, and 4700 where each makes the decoders of
# its plan itself.
LIMIT = 4400


def pid_of(root: Path) -> int:
    """The one fork server."""
    (found,) = list_fork_servers(root)
    return found.pid


@pytest.fixture(autouse=True)
def unshared_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group has a supervisor of its own, so that each is forked."""
    monkeypatch.setattr(supervisor_names, "_LIVE_GROUPS", 1)


async def add(cluster: LocalCluster, follower: Follower, job: Job) -> None:
    """Submit one more launch and follow it too."""
    handle = f"{job.id}.0"
    follower.jobs[handle], follower.cursors[handle], follower.events[handle] = job, "", []
    await cluster.submit([Launch(f"token-{job.id}", job)])


def test_its_death_ends_no_job_and_no_group_and_the_next_launch_has_another(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        await follower.until_state("1.0", State.RUNNING)
        await follower.until_state("2.0", State.RUNNING)
        # Its process group would take its supervisors along if they were in it.
        for number, end in ((3, os.kill), (4, os.killpg)):
            before, killed = list_pids(root), pid_of(root)
            end(killed, signal.SIGKILL)
            await add(cluster, follower, make_job(root, number, group=True))
            await follower.until_state(f"{number}.0", State.RUNNING)
            assert set(before) < set(list_pids(root)) and len(list_pids(root)) == number
            assert pid_of(root) != killed
        (root.parent / "go").touch()
        for handle in ("1.0", "2.0", "3.0", "4.0"):
            await follower.until_state(handle, State.FAILED)
            assert (follower.jobs[handle].exit_code, len(follower.jobs[handle].tasks[0].attempts)) == (5, 1)

    play(open_on(root, cpus=4), story)


@pytest.mark.parametrize("killed", [True, False], ids=["killed", "stopped for good"])
def test_a_launch_that_it_had_not_taken_up_happens_once(
    root: Path, monkeypatch: pytest.MonkeyPatch, killed: bool
) -> None:
    if not killed:
        monkeypatch.setattr(forkserver, "_ANSWER_SECONDS", 1.0)

    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1))
        await follower.until_state("1.0", State.RUNNING)
        server = pid_of(root)
        os.kill(server, signal.SIGSTOP)
        job = make_job(root, 2, "echo ran >> ran; exit 7", group=True)
        adding = asyncio.create_task(add(cluster, follower, job))
        if killed:
            await follower.until(lambda: (root / "hosts" / "groups-0" / "log").exists(), "the request")
            os.kill(server, signal.SIGKILL)
        await adding
        await follower.until_state("2.0", State.FAILED)
        assert follower.jobs["2.0"].exit_code == 7
        assert (root.parent / "ran").read_text() == "ran\n"
        assert follower.jobs["1.0"].state is State.RUNNING
        assert pid_of(root) != server
        (root.parent / "go").touch()
        await follower.until_state("1.0", State.FAILED)

    play(open_on(root, cpus=2), story)


LATE = """
import os, signal, sys
sys.path.insert(0, sys.argv[-3])
from overspan.bridge.runtime.local import forkserver
fork, server = os.fork, os.getpid()

def fork_and_die():
    pid = fork()
    if pid and os.getpid() == server:
        os.kill(server, signal.SIGKILL)
    return pid

os.fork = fork_and_die
sys.exit(forkserver.main())
"""
SHORT = """
import errno, os, sys
sys.path.insert(0, sys.argv[-3])
from overspan.bridge.runtime.local import forkserver
fork = os.fork

def lack():
    if not os.path.exists(MARK):
        raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return fork()

os.fork = lack
sys.exit(forkserver.main())
"""


def write_python(root: Path, code: str, mark: Path) -> str:
    """An interpreter that runs this code as the fork server."""
    python = root.parent / "python"
    text = f"MARK = {str(mark)!r}\n{code}"
    python.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -I -S -c {shlex.quote(text)} "$@"\n')
    python.chmod(0o755)
    return str(python)


def test_a_supervisor_that_was_forked_when_it_died_is_the_only_one(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1, group=True))
        await follower.until_state("1.0", State.RUNNING)
        assert list_fork_servers(root) == []
        (supervisor,) = list_pids(root)
        assert cluster._dispatch._hosts._hosts["groups-0"].pid == supervisor
        assert cluster._dispatch._hosts._host("1.0").deaths == 0
        (root.parent / "go").touch()
        await follower.until_state("1.0", State.FAILED)

    play(open_on(root, python=write_python(root, LATE, root.parent / "mark")), story)


def test_a_launch_waits_while_nothing_can_be_forked_and_says_so(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1, "exit 4"))
        await follower.until(lambda: any("ulimit -u" in reason for reason in reasons(follower, "1.0")), "the reason")
        (root.parent / "mark").touch()
        await follower.until_state("1.0", State.FAILED)
        assert follower.jobs["1.0"].exit_code == 4

    play(open_on(root, python=write_python(root, SHORT, root.parent / "mark")), story)


def test_a_supervisor_has_nothing_of_it(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1), make_job(root, 2, group=True))
        await follower.until_state("2.0", State.RUNNING)
        server = pid_of(root)
        requests = os.readlink(f"/proc/{server}/fd/0")
        for process in list_supervisors(root):
            folder = Path(f"/proc/{process.pid}")
            files = {int(link.name): os.readlink(link) for link in (folder / "fd").iterdir()}
            assert files[0] == "/dev/null"
            assert files[1] == files[2] and files[1].startswith(f"{root}/hosts/") and files[1].endswith("/log")
            assert requests not in files.values()
            # The line to the daemon.
            assert len([file for file in files.values() if file.startswith("socket:")]) <= 2
            assert os.getsid(process.pid) == process.pid
            status = dict(line.split(":\t") for line in (folder / "status").read_text().splitlines() if ":\t" in line)
            assert status["Umask"] == "0077"
            assert not int(status["SigIgn"], 16) >> (signal.SIGCHLD - 1) & 1
        for handle in ("1.0", "2.0"):
            await cluster.order([order_of(f"c{handle}", handle, Cancel(time.time()))])
            await follower.until_state(handle, State.CANCELLED)

    play(open_on(root, cpus=2), story)


def test_supervisors_share_their_memory(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1, group=True), make_job(root, 2, group=True))
        for handle in ("1.0", "2.0"):
            await follower.until_state(handle, State.RUNNING)
        for pid in list_pids(root):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            assert sum(int(line.split()[1]) for line in lines if line.startswith("Private_Dirty:")) < LIMIT
        (root.parent / "go").touch()
        for handle in ("1.0", "2.0"):
            await follower.until_state(handle, State.FAILED)

    play(open_on(root, cpus=2), story)


def test_other_code_is_forked_from_another(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1, group=True))
        await follower.until_state("1.0", State.RUNNING)
        before = pid_of(root)

        def upgrade(folder: str) -> str:
            path = Path(build_archive(folder))
            newer = path.with_name("supervisor-newer.pyz")
            newer.write_bytes(path.read_bytes())
            return str(newer)

        monkeypatch.setattr(forkserver, "build_archive", upgrade)
        await add(cluster, follower, make_job(root, 2, group=True))
        await follower.until_state("2.0", State.RUNNING)
        words = Path(f"/proc/{pid_of(root)}/cmdline").read_text().split("\0")
        assert pid_of(root) != before and f"{root}/cache/supervisor-newer.pyz" in words
        (root.parent / "go").touch()
        for handle in ("1.0", "2.0"):
            await follower.until_state(handle, State.FAILED)

    play(open_on(root, cpus=2), story)


def test_it_ends_with_the_last_supervisor_and_with_the_cluster(root: Path) -> None:
    async def story(cluster: LocalCluster) -> None:
        follower = await submit(cluster, make_job(root, 1, "exit 0", group=True))
        await follower.until_state("1.0", State.COMPLETED)
        await follower.until(lambda: not list_fork_servers(root), "the fork server's end")
        await add(cluster, follower, make_job(root, 2, group=True))
        await follower.until_state("2.0", State.RUNNING)
        assert pid_of(root)

    play(open_on(root), story)
    assert list_fork_servers(root) == []
    (supervisor,) = list_supervisors(root)
    assert kernel.signal_process(supervisor, signal.SIGKILL)
