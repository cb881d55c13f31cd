"""Workers on a Slurm and in pods that cannot reach the daemon, which visits their mailboxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from tests.system.across.conftest import FOLDER, Lab
from tests.system.across.pools import (
    BOTH,
    apply,
    configure,
    delete,
    find_holder,
    list_ready,
    play_short_jobs,
    send,
)

JOBS = 50


@pytest.fixture
def apart(lab: Lab) -> Iterator[Lab]:
    """Both clusters, of which neither is told where the daemon is."""
    configure(lab, kube={"image": "rig/python:1"})
    yield lab
    delete(lab)


def list_ways(lab: Lab) -> set[tuple[str, str]]:
    """The clusters of the workers that are ready, and the ways of these."""
    return {(worker["cluster"], worker["way"]) for worker in list_ready(lab)}


def run_many(lab: Lab, run: str) -> list[int]:
    """Many short jobs, in the midst of which the daemon is killed; all of them end as they should, each once."""
    jobs = [send(lab, f"{run}; echo job {number}; exit {number % 3}") for number in range(JOBS)]
    lab.until(jobs[5], "FAILED", timeout=120)
    lab.kill_daemon()
    lab.run("squeue")
    for number, job in enumerate(jobs):
        ended = lab.until(job, "FAILED" if number % 3 else "COMPLETED", timeout=240)
        assert (ended["exit_code"], ended["restarts"]) == (number % 3, 0)
        assert lab.log(job).splitlines() == [f"job {number}"]
    return jobs


def check_order(lab: Lab, jobs: list[int]) -> None:
    """Each job was given to a worker once, and before all others but its neighbour: two workers may ask together."""
    found = [
        [row["seq"] for row in lab.timeline(job) if not row["task"] and row["end"] == "CONFIGURING"] for job in jobs
    ]
    assert all(len(grants) == 1 for grants in found), found
    assert all(earlier < later for (earlier,), (later,) in zip(found, found[2:], strict=False)), found


def play_orders(lab: Lab) -> None:
    """A job that is cancelled ends there, and a worker that is drained ends when it holds none."""
    long = send(lab, "echo began; sleep 600")
    lab.until(long, "RUNNING", timeout=60)
    holder = find_holder(lab, long)
    lab.run("pool", "drain", "warm", holder["name"])
    lab.run("scancel", str(long))
    lab.until(long, "CANCELLED", timeout=60)
    assert lab.log(long) == "began\n"
    lab.until(holder["job"], "CANCELLED", timeout=60)


def test_allocations_have_mailboxes(apart: Lab) -> None:
    runs = f"{FOLDER}/runs"
    apart.site.rig.run(["rm", "-f", runs])
    apply(apart, 2, "cluster: leo\nresources: {cpus: 1}")
    assert list_ways(apart) == {("leo", "mailbox")}
    assert "mailbox" in apart.look("pool", "show", "warm")
    jobs = run_many(apart, f"echo $SLURM_JOB_ID >>{runs}")
    told = apart.site.rig.run(["cat", runs]).stdout.split()
    assert Counter(told) == Counter(map(str, jobs))
    check_order(apart, jobs)
    play_short_jobs(apart)
    play_orders(apart)


def test_pods_have_mailboxes(apart: Lab) -> None:
    apply(apart, 2, "cluster: kube\nresources: {cpus: 1}")
    assert list_ways(apart) == {("kube", "exec")}
    jobs = run_many(apart, "true")
    check_order(apart, jobs)
    play_short_jobs(apart)
    play_orders(apart)


def test_one_pool_has_mailboxes_of_both_kinds(apart: Lab) -> None:
    apply(apart, 4, BOTH)
    assert list_ways(apart) == {("leo", "mailbox"), ("kube", "exec")}
    play_short_jobs(apart)


def test_an_image_without_python_says_so(apart: Lab) -> None:
    file = apart.folder / "warm.yaml"
    file.write_text("pool: {workers: 1}\ncluster: kube\nresources: {cpus: 1, image_id: 'docker:rig/sh:1'}\n")
    apart.run("pool", "apply", "-p", "warm", str(file))
    apart.wait_until(lambda: "no python3" in apart.look("pool", "logs", "warm", check=False), 120, "the reason")


def test_a_mailbox_that_others_remove_or_lock_in_the_midst_of_a_job_costs_no_job(apart: Lab) -> None:
    """What the worker has said or was told there is lost with it, and so is the program that it runs."""
    apply(apart, 1, "cluster: leo\nresources: {cpus: 1}")
    (worker,) = list_ready(apart)
    go, runs = f"{FOLDER}/go", f"{FOLDER}/mailbox-runs"
    apart.site.rig.run(["rm", "-f", go, runs])
    first = send(apart, f"echo $SLURM_JOB_ID >>{runs}; until [ -e {go} ]; do sleep 0.2; done; echo first")
    second = send(apart, f"echo $SLURM_JOB_ID >>{runs}; echo second")
    apart.until(first, "RUNNING", timeout=60)
    newest = f"find {FOLDER} -type d -name mailbox -printf '%T@ %p\\n' | sort -n | tail -n 1 | cut -d ' ' -f 2-"
    mailbox = apart.site.rig.run(["sh", "-c", newest]).stdout.strip()
    assert mailbox
    apart.site.rig.run(["rm", "-rf", mailbox])
    apart.site.rig.run(["touch", go])
    apart.until(first, "COMPLETED", timeout=120)
    apart.until(second, "COMPLETED", timeout=120)
    apart.site.rig.run(["chmod", "777", mailbox])
    apart.wait_until(lambda: "not this user's own" in apart.look("pool", "show", "warm"), 60, "the trouble")
    third = send(apart, f"echo $SLURM_JOB_ID >>{runs}; echo third")
    apart.site.rig.run(["chmod", "700", mailbox])
    apart.until(third, "COMPLETED", timeout=120)
    told = apart.site.rig.run(["cat", runs]).stdout.split()
    assert told == [str(job) for job in (first, second, third)]
    assert [apart.log(job) for job in (first, second, third)] == ["first\n", "second\n", "third\n"]
    assert [each["name"] for each in list_ready(apart)] == [worker["name"]], "the worker went on"
