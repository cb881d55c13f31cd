"""Everything that can be killed is killed, at random moments, on a real Slurm: daemon, supervisor, slurmd, ssh, nodes.

Each run of a user's program appends a line of its own to one file, and holds a lock for as long as it lives.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.system.conftest import Span
from tests.system.kills import KILLS
from tests.system.slurm.conftest import Site
from tests.system.slurm.groups import connect, group, native_of, start, until_said
from tests.system.slurm.load import Load, site
from tests.waiting import WaitUntil

from overspan.adapters.slurm.transports.openssh import Address, find_folder, socket_path

__all__ = ["site"]

NODES = ("node1", "node2", "node3")
KINDS = ("daemon", "supervisor", "slurmd", "slurmctld", "ssh")
COUNT = max(4, KILLS // 3)
"""Kills in each story."""


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def ask_root(site: Site, on: str, *words: str) -> tuple[int, str]:
    done = site.rig.run(list(words), user="root", on=on)
    return done.rc, done.stdout


def list_leftovers(site: Site) -> list[str]:
    """What is left of jobs: rows of squeue, and processes of the user's or of Slurm's steps on the nodes."""
    listed = site.rig.run(["squeue", "--noheader", "--format=%i %T"])
    # A slurmctld that is coming back does not answer yet.
    found = listed.stdout.splitlines() if listed.rc == 0 else [listed.stderr]
    for node in NODES:
        rows = ask_root(site, node, "ps", "-eo", "user:20,comm:20,pid,ppid,etimes,args", "--no-headers")[1].splitlines()
        found += [f"{node}: {row}" for row in rows if row.split()[0] == "researcher" or row.split()[1] == "slurmstepd"]
    return found


def until_clean(site: Site, wait_until: Callable[..., Any]) -> None:
    """Nothing is left a minute later: the patience of a wait makes ten seconds sixty."""
    try:
        wait_until(lambda: not list_leftovers(site), 10)
    except AssertionError:
        left = list_leftovers(site)
        raise AssertionError("left in Slurm and on its nodes:\n" + "\n".join(left)) from None


def find_master(site: Site) -> int:
    """The ssh master's pid, 0 where there is none."""
    mark = socket_path(find_folder(), "rig", Address("rig", config=str(site.access.config))).encode()
    for folder in Path("/proc").iterdir():
        try:
            words = (folder / "cmdline").read_bytes() if folder.name.isdigit() else b""
        except OSError:
            continue
        # Some versions of ssh name a master in the list of processes.
        if mark in words and (b"[mux]" in words or b"ControlMaster=yes" in words):
            return int(folder.name)
    return 0


class Killer:
    """Kills one thing after the other."""

    def __init__(self, span: Span, site: Site) -> None:
        self.span = span
        self.site = site
        self.done: list[str] = []

    def kill(self, kind: str) -> bool:
        """Kill one thing of a kind, if there is one now."""
        killed: bool = getattr(self, f"_kill_{kind}")()
        self.done += [kind] * killed
        return killed

    def _kill_daemon(self) -> bool:
        self.span.kill_daemon()
        return True

    def _kill_supervisor(self) -> bool:
        command = ("pkill", "-KILL", "-x", "span-supervisor")
        codes = [ask_root(self.site, node, *command)[0] for node in NODES]
        return 0 in codes

    def _kill_slurmd(self) -> bool:
        node = NODES[len(self.done) % len(NODES)]
        return ask_root(self.site, node, "pkill", "-KILL", "-x", "slurmd")[0] == 0

    def _kill_slurmctld(self) -> bool:
        return ask_root(self.site, "ctl", "pkill", "-TERM", "-x", "slurmctld")[0] == 0

    def _kill_ssh(self) -> bool:
        pid = find_master(self.site)
        try:
            if pid:
                os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        return pid != 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_anything_is_killed_at_random_moments(remote: Span, site: Site, seed: int) -> None:
    load, killer = Load(remote, site, seed), Killer(remote, site)
    load.submit_group("g")
    load.submit_group("p", restart="task")
    load.submit_array("e", 4)
    load.submit_single("s")
    kinds = ["supervisor", *load.chance.sample(KINDS, 3)]
    kinds += load.chance.choices(KINDS, k=COUNT - len(kinds))
    load.chance.shuffle(kinds)
    for number, kind in enumerate(kinds):
        # The moment of a kill is the test's chance, not a wait for anything.
        time.sleep(load.chance.uniform(0.0, 1.2))
        if not killer.kill(kind):
            # What ended in the meantime had the last supervisor, and the last command over ssh.
            load.submit_group(f"g{number}")
            remote.wait_until(partial(killer.kill, kind), 20, f"something to kill: {kind}")
        load.submit_single(f"s{number}")
    remote.wait_until(lambda: not remote.run("squeue", "--noheader").stdout.strip(), 60, "all jobs to end")
    until_clean(site, remote.wait_until)
    load.check(lost=True)
    assert sorted(killer.done) == sorted(kinds)


def test_nothing_is_left_when_daemon_and_supervisor_are_killed_together(remote: Span, site: Site) -> None:
    deaf = "trap '' TERM; echo up; while :; do sleep 0.1; done"
    job = start(remote, group({name: {"run": deaf, "spread": True, "max_recoveries": 0} for name in ("a", "b")}))
    for name in ("a", "b"):
        until_said(remote, job, name, "up")
    remote.kill_daemon()
    killer = Killer(remote, site)
    killer.kill("supervisor")
    assert killer.done == ["supervisor"]
    until_clean(site, remote.wait_until)
    assert remote.until(job, "NODE_FAIL")["reason"] == "NodeDown"


def test_a_machine_that_vanishes_with_its_jobs(remote: Span, site: Site) -> None:
    wait = "echo up; while [ $OVERSPAN_ATTEMPT = 0 ]; do sleep 0.1; done"
    both = {"run": wait, "spread": True, "backoff": {"first": 0.1}}
    job = start(remote, group({"a": both, "b": both}))
    for name in ("a", "b"):
        until_said(remote, job, name, "up")
    node, first = remote.task(job, "b")["node_list"], native_of(remote, job)
    words = ("sbatch", "--parsable", "-M", "rig", "--mem=50", "--no-requeue", "-w", node, "--wrap", "sleep 300")
    single = remote.run(*words).stdout.partition(";")[0]
    remote.until(single, "RUNNING")
    site.rig.containers[node].kill()
    try:
        # Slurm gives a silent node up after SlurmdTimeout.
        remote.until(single, "NODE_FAIL", timeout=60)
        shown = remote.until(job, "COMPLETED", timeout=60)
        assert [[attempt["state"] for attempt in task["attempts"]] for task in shown["tasks"]] == [
            ["NODE_FAIL", "COMPLETED"]
        ] * 2
        assert native_of(remote, job) != first
    finally:
        site.rig.containers[node].start()
    ready = ("sinfo", "-hN", "-n", node, "-o", "%T")
    remote.wait_until(lambda: set(site.slurm(*ready).split()) == {"idle"}, 20, "the node to be back")
    until_clean(site, remote.wait_until)
