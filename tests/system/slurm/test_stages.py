"""Stages on a real Slurm: each is a native job that is submitted at its turn. Row MJ10 of docs/acceptance.md."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SERVE, SMALL, connect, group, native_of, read_time, start
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_stage_holds_nothing_before_its_turn(remote: Span, site: Site) -> None:
    """The first is a plain job, the second an allocation; the daemon dies while the first runs."""
    gate = Gate(site)
    documents = [
        {"name": "stages"},
        {"name": "fit", "resources": SMALL, "run": f"echo fitted; {gate.wait}"},
        {"name": "judge", "resources": SMALL, "num_nodes": 2, "run": "echo judged $OVERSPAN_MEMBERS"},
    ]
    job = start(remote, str(yaml.safe_dump_all(documents, sort_keys=False)))
    remote.until(job, "RUNNING", task="fit")
    first = native_of(remote, job)
    ours = ("squeue", "-h", "-n", "stages", "-o", "%A %D")
    assert site.slurm(*ours).split() == [first, "1"]
    rows = remote.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout.splitlines()
    assert sorted(rows) == [f"{job}+0 RUNNING None", f"{job}+1 PENDING Dependency"]
    remote.kill_daemon()
    gate.open()
    remote.until(job, "COMPLETED")
    second = native_of(remote, job)
    assert second != first
    assert remote.log(job, "fit") == "fitted\n"
    assert remote.log(job, "judge", "--node", "0") == "judged judge-0.stages,judge-1.stages\n"
    ends = site.slurm("sacct", "-nXPj", first, "-o", "End").strip()
    assert ends <= site.slurm("sacct", "-nXPj", second, "-o", "Submit").strip()


def test_tasks_of_a_group_that_wait_for_an_end_hold_nothing_before_their_turn(remote: Span, site: Site) -> None:
    """An auxiliary prepares on one node; a trainer and its server follow, while no daemon runs at the change."""
    gate, more = Gate(site), Gate(site)
    tasks: dict[str, dict[str, Any]] = {
        "prepare": {"run": f"echo $OVERSPAN_MEMBERS; {gate.wait}"},
        "train": {
            "needs": ["ok:prepare"],
            "run": f"getent hosts server-0.turns > /dev/null && echo $OVERSPAN_MEMBERS; {more.wait}",
        },
        "server": {"needs": ["ok:prepare"], "run": SERVE},
    }
    job = start(remote, group(tasks, name="turns", primary_tasks=["train"]))
    remote.until(job, "RUNNING", task="prepare")
    first = native_of(remote, job)
    ours = ("squeue", "-h", "-n", "turns", "-o", "%A %C")
    assert site.slurm(*ours).split() == [first, "1"]
    rows = remote.run("squeue", "-h", "-j", str(job), "-o", "%i %T %r").stdout.splitlines()
    waits = [f"{job}+{place} PENDING Dependency" for place in (1, 2)]
    assert sorted(rows) == [f"{job}+0 RUNNING None", *waits]
    remote.kill_daemon()
    gate.open()
    remote.until(job, "RUNNING", task="server")
    second = native_of(remote, job)
    assert second != first
    held = site.slurm(*ours).split()
    assert held[0] == second and int(held[1]) >= 2
    remote.wait_until(lambda: "up" in remote.log(job, "server"), 20, "the server to be up")
    more.open()
    shown = remote.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1, 1]
    assert remote.log(job, "prepare") == "prepare-0.turns\n"
    assert remote.log(job, "train") == "train-0.turns,server-0.turns\n"
    # The server had its TERM.
    assert read_time(remote.log(job, "server"), "term") > shown["started_at"]
    ends = site.slurm("sacct", "-nXPj", first, "-o", "End").strip()
    assert ends <= site.slurm("sacct", "-nXPj", second, "-o", "Submit").split()[0]


def test_followers_of_a_failed_task_reach_no_queue(remote: Span, site: Site) -> None:
    tasks: dict[str, dict[str, Any]] = {
        "fit": {"run": "exit 3"},
        "judge": {"needs": ["ok:fit"], "run": "echo judged"},
        "show": {"needs": ["ended:judge"], "run": "echo shown"},
    }
    job = start(remote, group(tasks, name="skips"))
    shown = remote.until(job, "FAILED")
    assert [(task["state"], len(task["attempts"])) for task in shown["tasks"]] == [
        ("FAILED", 1),
        ("CANCELLED", 0),
        ("CANCELLED", 0),
    ]
    native = native_of(remote, job)
    asked = ("sacct", "-nXP", "--name", "skips", "-S", "now-1hour", "-o", "JobID")
    # Accounting is told late.
    remote.wait_until(lambda: native in site.slurm(*asked).split(), 40, "the accounting to know the job")
    assert site.slurm(*asked).split() == [native]


def test_a_cancel_while_a_stage_waits_in_slurms_queue_ends_the_group(remote: Span, site: Site) -> None:
    """All nodes are taken when the turn comes: the stage waits there, and the cancel takes it from the queue."""
    gate, hold = Gate(site), Gate(site)
    nodes = int(site.slurm("sinfo", "-h", "-o", "%D").split()[0])
    tasks: dict[str, dict[str, Any]] = {
        "fit": {"run": gate.wait},
        "judge": {"needs": ["ok:fit"], "num_nodes": nodes, "slurm": {"exclusive": ""}, "run": "echo judged"},
    }
    job = start(remote, group(tasks, name="late"))
    remote.until(job, "RUNNING", task="fit")
    holder = start(remote, group({"h": {"run": hold.wait}}, name="holder"))
    remote.until(holder, "RUNNING")
    gate.open()
    waits = f"{job}+1 PENDING Resources"
    listed = ("squeue", "-h", "-j", str(job), "-o", "%i %T %r")
    remote.wait_until(lambda: waits in remote.run(*listed).stdout.splitlines(), 40, "the stage to wait for resources")
    remote.run("scancel", str(job))
    shown = remote.until(job, "CANCELLED")
    assert [task["state"] for task in shown["tasks"]] == ["COMPLETED", "CANCELLED"]
    remote.wait_until(lambda: not site.slurm("squeue", "-h", "-n", "late").strip(), 20, "Slurm's queue to be empty")
    hold.open()
    remote.until(holder, "COMPLETED")
