"""`race: true` on a real Slurm and a real Kubernetes: a place in both queues, until one of them has room."""

from __future__ import annotations

import pytest
from tests.system.race.conftest import Pair

SINGLE = "name: raced\ncluster: [leo, kube]\nrace: true\nresources: {cpus: 0.1, memory: 50M}\nrun: echo ran once\n"
GROUP = (
    "name: raced\nexecution: parallel\ncluster: [kube, leo]\nrace: true\n"
    "---\nname: a\nresources: {cpus: 0.1, memory: 50M}\nrun: echo ran once; sleep 1\n"
    "---\nname: b\nresources: {cpus: 0.1, memory: 50M}\nrun: sleep 1\n"
)


def test_both_keep_the_job_until_kubernetes_has_room(pair: Pair) -> None:
    job = pair.submit(SINGLE)
    native = pair.until_waiting(job)
    pair.free_kube()
    ended = pair.until(job, "COMPLETED", timeout=60)
    assert (ended["cluster"], ended["restarts"], ended["bids"]) == ("kube", 0, [])
    assert pair.log(job) == "ran once\n"
    pair.until_released(native)
    assert pair.slurm_state(native) == "CANCELLED"
    told = [row["text"] for row in pair.timeline(job)]
    # Which of them is the launch and which the bid depends on who answers the submission.
    assert any(text.startswith("waits for the cluster ") for text in told)
    if "given to the cluster leo" in told:
        assert "goes to the cluster kube: it is the first to have room" in told


def test_both_keep_the_job_until_slurm_has_room(pair: Pair) -> None:
    job = pair.submit(SINGLE)
    native = pair.until_waiting(job)
    # The daemon is not there when it happens.
    pair.kill_daemon()
    pair.free_slurm()
    pair.wait_until(lambda: pair.slurm_state(native) == "RUNNING", 60, "Slurm to give it a node")
    ended = pair.until(job, "COMPLETED", timeout=60)
    assert (ended["cluster"], ended["restarts"]) == ("leo", 0)
    assert pair.log(job) == "ran once\n"
    pair.until_released(native)


@pytest.mark.parametrize("first", ["kube", "leo"])
def test_a_group_runs_whole_on_the_first(pair: Pair, first: str) -> None:
    job = pair.submit(GROUP)
    native = pair.until_waiting(job, pods=2)
    (pair.free_kube if first == "kube" else pair.free_slurm)()
    ended = pair.until(job, "COMPLETED", timeout=90)
    assert ended["cluster"] == first
    assert pair.log(job, "a") == "ran once\n"
    pair.until_released(native)


def test_a_cancel_leaves_nothing_on_either(pair: Pair) -> None:
    job = pair.submit(SINGLE)
    native = pair.until_waiting(job)
    pair.run("scancel", str(job))
    pair.until(job, "CANCELLED")
    pair.until_released(native)
