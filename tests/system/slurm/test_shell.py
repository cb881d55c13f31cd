"""`span shell` on a real Slurm: beside members of a group, in what a failed group keeps, beside single jobs."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import SERVE, connect, group, native_of, start, until_said
from tests.system.terminals import read_until
from tests.waiting import WaitUntil

TELL = "echo $OVERSPAN_TASK $OVERSPAN_NODE_INDEX $SLURM_JOB_ID $SLURMD_NODENAME; getent hosts a-0.g b-0.g"


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def look(span: Span, *words: str) -> list[str]:
    """What a member finds, by a shell beside it."""
    return span.run("shell", *words, "--", "sh", "-c", TELL).stdout.splitlines()


def test_a_hetjobs_members_are_entered_each_on_its_node(remote: Span, site: Site) -> None:
    tasks: dict[str, dict[str, Any]] = {"a": {"run": SERVE}, "b": {"run": SERVE, "slurm": {"partition": "short"}}}
    job = start(remote, group(tasks))
    for name in tasks:
        until_said(remote, job, name, "up")
    native = native_of(remote, job)
    for number, name in enumerate(tasks):
        told, *hosts = look(remote, f"{job}+{number}")
        assert told == f"{name} 0 {native} {remote.task(job, name)['node_list']}"
        assert [line.split()[1] for line in hosts] == ["a-0.g", "b-0.g"]
    done = remote.run("shell", f"{job}.b", "--", "sh", "-c", "exit 9", check=False)
    assert done.returncode == 9
    assert remote.job(job)["state"] == "RUNNING"


def test_members_of_a_set_are_entered_each_in_its_own_job(remote: Span, site: Site) -> None:
    tasks: dict[str, dict[str, Any]] = {"a": {"run": SERVE}, "b": {"run": SERVE}}
    job = start(remote, group(tasks, restart="task"))
    for name in tasks:
        until_said(remote, job, name, "up")
    numbers = set()
    for name in tasks:
        told, *hosts = look(remote, f"{job}.{name}")
        numbers.add(told.split()[2])
        assert told.split()[:2] == [name, "0"] and [line.split()[1] for line in hosts] == ["a-0.g", "b-0.g"]
    assert len(numbers) == 2
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")


def test_a_failed_group_keeps_its_allocation_until_it_is_given_back(remote: Span, site: Site) -> None:
    failing = {"run": "sleep 1; exit 3", "time": "10m", "num_nodes": 3}
    tasks: dict[str, dict[str, Any]] = {"a": failing, "b": {"run": SERVE, "time": "10m"}}
    job = start(remote, group(tasks, primary_tasks=["a"], hold_on_failure="10m"))
    remote.wait_until(lambda: remote.job(job)["reason"] == "HeldOnFailure", 30, "the hold")
    native = native_of(remote, job)
    parts = [line.split() for line in site.slurm("squeue", "-hj", native, "-o", "%T %L").splitlines()]
    assert parts and all(state == "RUNNING" and left > "15:00" for state, left in parts)
    # The third node has no user namespaces.
    found = set()
    for node in range(3):
        told, *hosts = look(remote, f"{job}.a", "--node", str(node))
        assert told.startswith(f"a {node} {native} node")
        found.add(told.split()[-1])
        assert [line.split()[1] for line in hosts] == ["a-0.g", "b-0.g"]
    assert found == {"node1", "node2", "node3"}
    assert look(remote, f"{job}.b")[0].startswith("b 0")
    remote.run("scancel", str(job))
    assert remote.until(job, "FAILED")["exit_code"] == 3
    remote.wait_until(lambda: not site.slurm("squeue", "-hj", native), 30, "the nodes to be given back")
    refused = remote.run("shell", str(job), check=False)
    assert refused.returncode == 1 and "has ended: FAILED" in refused.stderr


def test_a_hold_ends_by_itself(remote: Span, site: Site) -> None:
    job = start(remote, group({"a": {"run": "exit 3"}}, hold_on_failure="15s"))
    remote.wait_until(lambda: remote.job(job)["reason"] == "HeldOnFailure", 30, "the hold")
    assert remote.until(job, "FAILED")["exit_code"] == 3
    native = native_of(remote, job)
    remote.wait_until(lambda: not site.slurm("squeue", "-hj", native), 30, "the nodes to be given back")


def test_a_single_job_has_a_plain_shell(remote: Span, site: Site) -> None:
    script = remote.folder / "job.sh"
    script.write_text("#!/bin/sh\n#SBATCH --mem=50\necho up\nsleep 300\n")
    job = remote.run("sbatch", "--parsable", "-M", "rig", str(script)).stdout.partition(";")[0].strip()
    remote.until(job, "RUNNING")
    native = native_of(remote, job)
    told = remote.run("shell", job, "--", "sh", "-c", "echo $SLURM_JOB_ID; pwd; exit 5", check=False)
    assert told.returncode == 5
    number, folder = told.stdout.splitlines()
    assert number == native and folder == site.slurm("squeue", "-hj", native, "-o", "%Z").strip()
    leader, follower = pty.openpty()
    words = [str(Path(sys.executable).with_name("span")), "shell", job]
    process = subprocess.Popen(
        words, stdin=follower, stdout=follower, stderr=follower, env=remote.environment, start_new_session=True
    )
    os.close(follower)
    try:
        os.write(leader, b"tty; echo job=$SLURM_JOB_ID; exit 4\n")
        assert b"/dev/pts/" in read_until(leader, f"job={native}".encode())
        assert process.wait(120) == 4
    finally:
        process.kill()
        process.wait()
        os.close(leader)
    assert remote.job(job)["state"] == "RUNNING"
