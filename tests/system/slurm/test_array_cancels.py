"""A whole array that is cancelled: Slurm is told at once, and no element's end is told as its own failure."""

from __future__ import annotations

from collections import Counter

from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.daemons import link_up, remote, submit

__all__ = ["remote"]

ELEMENTS = 300


def count(site: Site, state: str) -> int:
    return site.slurm("squeue", "-h", "-u", "researcher", "--array", "-t", state, "-o", "%i").count("\n")


def test_a_cancelled_array_ends_as_cancelled_although_the_daemon_dies_in_the_middle(remote: Span, site: Site) -> None:
    link_up(remote)
    array = submit(remote, f"--array=1-{ELEMENTS}", "--wrap", "sleep 3600")
    remote.wait_until(lambda: count(site, "R") and count(site, "PD") > ELEMENTS // 2, 60, "some run, others wait")
    remote.run("scancel", "--user=" + remote.job(array)["user"])
    remote.wait_until(lambda: not count(site, "PD"), 60, "Slurm has nothing that waits")
    remote.kill_daemon()
    remote.wait_until(lambda: not count(site, "R,CG,S"), 60, "Slurm has nothing that runs")
    remote.wait_until(lambda: not remote.run("squeue", "-h").stdout.strip(), 60, "the next daemon knows that")
    told = remote.run("sacct", "-n", "-X", "-P", "-j", str(array), "-o", "State").stdout.split("\n")
    assert set(Counter(line.split(" ")[0] for line in told if line)) == {"CANCELLED"}
