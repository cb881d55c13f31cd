"""Work that the old version started is adopted, signalled, ended and accounted for by this one, on each cluster kind.

The old version is built once, of its commit, in the user's cache. Slurm and Kubernetes are stand-ins that outlive both
daemons; the supervisors on this machine and on the fake Slurm are the old version's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.upgrade.changes import change, list_accounts, list_starts, old
from tests.upgrade.installation import Installation, end_processes
from tests.upgrade.old_version import OldVersion
from tests.waiting import wait_until

__all__ = ["old"]

pytestmark = pytest.mark.timeout(1800)

GROUP = """
---
name: NAME
execution: parallel
primary_tasks: [trainer]
---
name: server
grace_period: 5s
resources: {cpus: 0.5}
run: |
  # A shell tells of each program below it that a signal has ended.
  exec 2>/dev/null
  trap 'echo stopped; exit 0' TERM
  echo serving
  while :; do sleep 0.1; done  # hang
---
name: trainer
grace_period: 5s
resources: {cpus: 0.5}
run: |
  exec 2>/dev/null
  trap 'echo hint' USR1
  echo training
  until [ -e GATE ]; do sleep 0.1; done  # hang
  echo trained
"""

SLURM = """
---
name: NAME
execution: parallel
primary_tasks: [trainer]
---
name: server
run: hang
---
name: trainer
run: WORK
"""


FOLLOWED = """
---
name: NAME
execution: parallel
---
name: trainer
resources: {cpus: 1}
run: |
  echo training
  until [ -e GATE ]; do sleep 0.1; done  # hang
---
name: judge
resources: {cpus: 1}
needs: [ok:trainer]
run: echo judged
"""


FOLLOWED_ON_SLURM = """
---
name: followed
execution: parallel
---
name: fit
run: gate GATE
---
name: judge
needs: [ok:fit]
run: sleep 0.1
"""


@pytest.fixture
def span(old: OldVersion, tmp_path: Path) -> Iterator[Installation]:
    """An installation of the old version; nothing of it is left afterwards."""
    found = Installation(tmp_path, old.span)
    found.configure()
    try:
        with found.stand_in(old):
            yield found
            found.end()
    finally:
        end_processes(found.state)


def write_group(span: Installation, name: str) -> str:
    """The group; its trainer ends when there is the file GATE."""
    return GROUP.replace("NAME", name).replace("GATE", str(span.root / "gate"))


@pytest.mark.parametrize("killed", [False, True], ids=["ended", "killed"])
def test_a_group_of_this_machine_is_adopted_signalled_and_ends_by_its_rules(span: Installation, killed: bool) -> None:
    job = span.submit("group", write_group(span, "group"))
    single = span.batch("trap 'echo hint' USR1; echo begun; while :; do sleep 0.1; done", "-J", "single")
    span.until(job, "RUNNING")
    wait_until(lambda: "training" in span.log(job) and "begun" in span.log(single), 20, "their first lines")
    before = list_starts(span, job, single)
    change(span, killed)
    assert list_starts(span, job, single) == before
    span.run("scancel", "-s", "USR1", f"{job}+1")
    span.run("scancel", "-b", "-s", "USR1", str(single))
    wait_until(lambda: "hint" in span.log(job) and "hint" in span.log(single), 20, "the signals' effects")
    (span.root / "gate").touch()
    span.run("scancel", str(single))
    assert span.until(job, "COMPLETED", "FAILED", "CANCELLED")["state"] == "COMPLETED"
    span.until(single, "CANCELLED")
    assert list_starts(span, job, single) == before
    lines = ["server-0  | serving", "server-0  | stopped", "trainer-0 | hint", "trainer-0 | trained"]
    assert sorted(span.log(job).splitlines()) == [*lines, "trainer-0 | training"]
    assert list_accounts(span, job) == [[f"{job}+0", "COMPLETED", "0:0"], [f"{job}+1", "COMPLETED", "0:0"]]


@pytest.mark.parametrize("cluster", ["local", "pods"])
def test_a_group_that_has_booked_all_its_turns_keeps_them(span: Installation, cluster: str) -> None:
    """The old version books all tasks at the start; its launch carries them all to the end, and no second one is made.

    One that waited then is launched as it was submitted; one that is submitted now takes turns.
    """
    on = ("-M", cluster)
    text = FOLLOWED.replace("GATE", str(span.root / "gate"))
    runs = span.submit("runs", text.replace("NAME", "runs"), *on)
    waits = span.submit("waits", text.replace("NAME", "waits"), "--hold", *on)
    span.until(runs, "RUNNING")
    wait_until(lambda: "training" in span.log(runs), 20, "its first line")
    before = list_starts(span, runs)
    change(span)
    span.run("release", str(waits))
    new = span.submit("new", text.replace("NAME", "new"), *on)
    for job in (runs, waits, new):
        span.until(job, "RUNNING")
        wait_until(lambda job=job: "training" in span.log(job), 20, "its first line")  # type: ignore[misc]
    assert list_starts(span, runs) == before
    asks = [
        span.run("squeue", "-h", "--groups", "-j", str(job), "-o", "%C").stdout.split() for job in (runs, waits, new)
    ]
    assert asks == [["2"], ["2"], ["1"]]
    (span.root / "gate").touch()
    for job in (runs, waits, new):
        assert span.until(job, "COMPLETED", "FAILED", "CANCELLED")["state"] == "COMPLETED"
        assert [len(task["attempts"]) for task in span.show(job)["tasks"]] == [1, 1]
        assert sorted(span.log(job).splitlines()) == ["judge-0   | judged", "trainer-0 | training"]
    told = [span.run("timeline", str(job)).stdout.count("judge is next") for job in (runs, waits, new)]
    assert told == [0, 0, 1]


def test_work_on_slurm_is_adopted_ends_by_itself_and_is_cancelled(span: Installation) -> None:
    on = ("-M", "slurm")
    ends = span.submit("ends", SLURM.replace("NAME", "ends").replace("WORK", f"gate {span.root / 'gate'}"), *on)
    cancelled = span.submit("cancelled", SLURM.replace("NAME", "cancelled").replace("WORK", "hang"), *on)
    members = SLURM.replace("NAME", "members").replace("WORK", "hang").replace("primary", "restart: task\nprimary")
    jobs = (ends, cancelled, span.submit("members", members, *on), span.batch("hang", "-J", "single", *on))
    followed = span.submit("followed", FOLLOWED_ON_SLURM.replace("GATE", str(span.root / "gate")), *on)
    span.until(followed, "RUNNING")
    for job in jobs:
        span.until(job, "RUNNING")
    before = list_starts(span, *jobs)
    change(span)
    assert list_starts(span, *jobs) == before
    assert {span.show(job)["state"] for job in jobs} == {"RUNNING"}
    (span.root / "gate").touch()
    assert span.until(ends, "COMPLETED", "FAILED")["state"] == "COMPLETED"
    # The allocation of both is kept to the end, and its supervisor starts the second task.
    assert span.until(followed, "COMPLETED", "FAILED")["state"] == "COMPLETED"
    assert [len(task["attempts"]) for task in span.show(followed)["tasks"]] == [1, 1]
    assert "judge is next" not in span.run("timeline", str(followed)).stdout
    span.run("scancel", *map(str, jobs[1:]))
    for job in jobs[1:]:
        span.until(job, "CANCELLED", timeout=60)
    assert list_starts(span, *jobs) == before
    assert list_accounts(span, ends) == [[f"{ends}+0", "COMPLETED", "0:15"], [f"{ends}+1", "COMPLETED", "0:0"]]
    assert {row[1].split()[0] for row in list_accounts(span, *jobs[1:])} == {"CANCELLED"}
    assert sorted(span.log(ends).splitlines()) == ["server-0  | begun", "trainer-0 | begun"]
    assert not span.run("squeue", "-h", *on).stdout.strip()


def test_pods_are_adopted_end_by_themselves_and_are_cancelled(span: Installation) -> None:
    on = ("-M", "pods")
    job = span.submit("group", write_group(span, "group"), *on)
    other = span.submit("other", write_group(span, "other").replace("gate", "never"), *on)
    for each in (job, other):
        span.until(each, "RUNNING")
        wait_until(lambda each=each: "training" in span.log(each), 20, "its first line")  # type: ignore[misc]
    before = list_starts(span, job, other)
    change(span)
    assert list_starts(span, job, other) == before
    (span.root / "gate").touch()
    span.run("scancel", str(other))
    assert span.until(job, "COMPLETED", "FAILED")["state"] == "COMPLETED"
    span.until(other, "CANCELLED")
    assert list_starts(span, job, other) == before
    lines = ["server-0  | serving", "server-0  | stopped", "trainer-0 | trained", "trainer-0 | training"]
    # Pods are kept until their nodes have answered with all that was printed.
    wait_until(lambda: sorted(span.log(job).splitlines()) == lines, 60, "all that was printed")
    assert list_accounts(span, job) == [[f"{job}+0", "COMPLETED", "0:0"], [f"{job}+1", "COMPLETED", "0:0"]]
