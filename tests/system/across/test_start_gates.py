"""Groups over a real Slurm whose nodes are taken: what waits at its start gate elsewhere gives back what it has."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from tests.rigs.reach import find_address
from tests.system.across.conftest import Lab
from tests.system.watchers import find_own_address

GROUP = """\
name: pair
execution: parallel
start_timeout: 5s
---
name: trainer
cluster: leo
resources: {{cpus: 1, memory: 50M}}
max_restarts: 0
run: echo trained
---
name: server
cluster: {cluster}
resources: {{cpus: 0.1, memory: 50M}}
max_restarts: 0
run: echo served
"""


@pytest.fixture
def busy(lab: Lab) -> Iterator[str]:
    """The native id of a job that has all of Slurm's nodes."""
    slurm = lab.site.slurm
    native = slurm("sbatch", "--parsable", "--exclusive", "--nodes=3", "--wrap", "sleep 900").strip()
    try:
        lab.wait_until(lambda: slurm("squeue", "-hj", native, "-o", "%T").strip() == "RUNNING", 60, "its nodes")
        yield native
    finally:
        slurm("scancel", native)


def await_return(lab: Lab, job: int, cluster: str) -> None:
    """Wait until the group says that its part there was given back; Slurm keeps its own part in the queue."""
    lab.wait_until(lambda: lab.job(job)["reason"].endswith(f"given back meanwhile: {cluster}"), 90, "a return")
    shown = lab.job(job)
    assert (shown["state"], shown["reason"].split(":")[1].strip()) == ("PENDING", "leo")


def check_end(lab: Lab, job: int) -> None:
    """Both tasks have run once, and nothing was spent."""
    # Slurm's part may give up before the other is back: then a minute passes.
    shown = lab.until(job, "COMPLETED", timeout=240)
    assert shown["restarts"] == 0
    assert (lab.log(job, "trainer"), lab.log(job, "server")) == ("trained\n", "served\n")
    for name in ("trainer", "server"):
        assert (lab.task(job, name)["attempt"], lab.task(job, name)["restarts"]) == (0, 0)
    lab.until_empty()


@pytest.mark.parametrize("killed", [False, True])
def test_pods_give_their_nodes_back_while_slurm_is_full_and_have_them_again_when_it_is_not(
    lab: Lab, busy: str, killed: bool
) -> None:
    """MX01: the pod goes while Slurm's nodes are taken, also under the next daemon, and comes when they are free."""
    job = lab.submit(GROUP.format(cluster="kube"))
    lab.wait_until(lambda: lab.pods(), 60, "the pod")
    await_return(lab, job, "kube")
    if killed:
        lab.kill_daemon()
        # The next command starts the next one.
        lab.job(job)
    lab.wait_until(lambda: not lab.pods(), 60, "the pod to be given back")
    assert "given back meanwhile: kube" in lab.run("show", str(job)).stdout
    lab.site.slurm("scancel", busy)
    check_end(lab, job)


@pytest.mark.parametrize("killed", [False, True])
def test_a_part_on_this_machine_gives_back_its_booking_while_slurm_is_full(lab: Lab, busy: str, killed: bool) -> None:
    """MX01: another job has the machine meanwhile."""
    settings = json.loads(lab.config.read_text())
    address = find_own_address(find_address(lab.site.rig))
    settings["clusters"]["local"] = {"kind": "local", "cpus": 1, "address": address}
    lab.config.write_text(json.dumps(settings))
    job = lab.submit(GROUP.format(cluster="local"))
    await_return(lab, job, "local")
    if killed:
        lab.kill_daemon()
    other = lab.submit("name: other\nresources: {cpus: 1}\nrun: exit 0\n", "-M", "local")
    lab.until(other, "COMPLETED", timeout=60)
    lab.site.slurm("scancel", busy)
    check_end(lab, job)


def test_a_group_that_is_cancelled_while_a_part_is_away_leaves_nothing(lab: Lab, busy: str) -> None:
    """MX01: neither the queue nor the pods have anything of it."""
    job = lab.submit(GROUP.format(cluster="kube"))
    await_return(lab, job, "kube")
    lab.run("scancel", str(job))
    lab.until(job, "CANCELLED", timeout=60)
    lab.until_empty()
    left = ("squeue", "-h", "-t", "PD,R,CF", "-o", "%i")
    lab.wait_until(lambda: lab.site.slurm(*left).split() == [busy], 60, "Slurm's queue to have nothing of it")
