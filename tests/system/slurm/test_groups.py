"""Groups as one allocation on a real Slurm, by a daemon outside that reaches it over ssh."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import (
    SERVE,
    SMALL,
    check_delay,
    connect,
    group,
    native_of,
    read_time,
    start,
    until_kept,
    until_said,
)
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_group_runs_and_ends_by_its_own_rules_while_the_daemon_is_dead(remote: Span, site: Site) -> None:
    # The third node has no user namespaces.
    find = "for host in trainer-0.g trainer-2.g server-0.g; do getent hosts $host || exit 9; done"
    gate = Gate(site)
    job = start(
        remote,
        group(
            {
                "trainer": {"num_nodes": 3, "run": f"{find}; echo $SLURM_JOB_ID; {gate.wait}; date +end=%s.%N"},
                "server": {"run": f"{find}; {SERVE}"},
            },
            primary_tasks=["trainer"],
            termination_delay="1s",
        ),
    )
    remote.until(job, "RUNNING")
    until_said(remote, job, "server", "up")
    remote.kill_daemon()
    native = native_of(remote, job)
    remote.kill_daemon()
    gate.open()
    remote.wait_until(
        lambda: "COMPLETED" in site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T"), 20, "its end"
    )
    unseen = time.time()
    shown = remote.until(job, "COMPLETED")
    tasks = {task["name"]: task for task in shown["tasks"]}
    assert {name: (task["state"], task["exit_code"]) for name, task in tasks.items()} == {
        "trainer": ("COMPLETED", 0),
        "server": ("COMPLETED", 0),
    }
    assert tasks["server"]["reason"] == "PrimariesDone"
    ended = max(read_time(remote.log(job, "trainer", "--node", node), "end") for node in ("0", "1", "2"))
    check_delay(tasks, ended, read_time(remote.log(job, "server"), "term"), unseen)
    assert native in remote.log(job, "trainer", "--node", "0")


def test_a_failing_trainer_fails_the_group_with_its_code(remote: Span, site: Site) -> None:
    gate = Gate(site)
    job = start(
        remote,
        group(
            {"trainer": {"run": f"echo here; {gate.wait}; exit 3"}, "server": {"run": SERVE}},
            primary_tasks=["trainer"],
            termination_delay="60s",
        ),
    )
    until_said(remote, job, "server", "up")
    gate.open()
    shown = remote.until(job, "FAILED")
    assert shown["exit_code"] == 3
    states = {task["name"]: (task["state"], task["reason"]) for task in shown["tasks"]}
    assert states == {"trainer": ("FAILED", "NonZeroExitCode"), "server": ("CANCELLED", "PrimaryFailed")}
    assert "term" in remote.log(job, "server")
    until_kept(remote, site, native_of(remote, job), "State,ExitCode", {"FAILED|3:0"})


def test_a_restart_in_place_keeps_the_allocation(remote: Span) -> None:
    once = "[ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; echo attempt $OVERSPAN_ATTEMPT in $SLURM_JOB_ID"
    recovery = {**SMALL, "job_recovery": {"max_restarts_on_errors": 2}}
    job = start(
        remote,
        group(
            {"trainer": {"run": once, "resources": recovery, "backoff": {"first": 0.1}}, "other": {"run": "sleep 2"}}
        ),
    )
    shown = remote.until(job, "COMPLETED")
    trainer = next(task for task in shown["tasks"] if task["name"] == "trainer")
    assert [attempt["exit_code"] for attempt in trainer["attempts"]] == [4, 0]
    assert f"attempt 1 in {native_of(remote, job)}" in remote.log(job, "trainer")


def test_a_task_with_a_budget_is_a_group_of_one(remote: Span) -> None:
    text = {
        "name": "alone",
        "run": "[ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; echo done",
        "resources": {**SMALL, "job_recovery": {"max_restarts_on_errors": 1}},
        "backoff": {"first": 0.1},
    }
    job = start(remote, str(yaml.safe_dump(text)))
    shown = remote.until(job, "COMPLETED")
    assert len(shown["tasks"][0]["attempts"]) == 2
    assert remote.log(job) == "done\n"


def test_a_lost_node_has_the_group_submitted_again(remote: Span, site: Site) -> None:
    wait = "echo up $SLURMD_NODENAME; while [ $OVERSPAN_ATTEMPT = 0 ]; do sleep 0.1; done; sleep 1"
    job = start(
        remote,
        group(
            {
                "a": {"run": wait, "spread": True, "backoff": {"first": 0.1}},
                "b": {"run": wait, "spread": True, "backoff": {"first": 0.1}},
            }
        ),
    )
    until_said(remote, job, "a", "up")
    until_said(remote, job, "b", "up")
    first = native_of(remote, job)
    node = remote.task(job, "b")["node_list"]
    update = ["scontrol", "update", f"NodeName={node}"]
    assert site.rig.run([*update, "State=DOWN", "Reason=test"], user="root").rc == 0
    try:
        remote.wait_until(lambda: remote.job(job)["native_id"] not in ("", first), 40, "another allocation")
    finally:
        site.rig.run([*update, "State=RESUME"], user="root")
    shown = remote.until(job, "COMPLETED", timeout=60)
    assert {len(task["attempts"]) for task in shown["tasks"]} == {2}
    assert {task["attempts"][0]["state"] for task in shown["tasks"]} == {"NODE_FAIL"}


def test_a_cancel_with_a_grace_longer_than_killwait(remote: Span, site: Site) -> None:
    flush = "trap 'sleep 8; echo flushed; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = start(remote, group({name: {"run": flush, "grace_period": "60s"} for name in ("a", "b")}))
    for name in ("a", "b"):
        until_said(remote, job, name, "up")
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")
    for name in ("a", "b"):
        assert "flushed" in remote.log(job, name)


def test_a_waiting_group_is_held_changed_and_cancelled(remote: Span, site: Site) -> None:
    # More than is free, so that Slurm keeps it waiting.
    with fill(site, remote.wait_until, "-N3", "--exclusive"):
        job = start(remote, group({"a": {"run": "true", "time": "10m"}, "b": {"run": "true", "time": "10m"}}))
        native = native_of(remote, job)
        remote.wait_until(lambda: remote.job(job)["reason"] in ("Resources", "Priority"), 20, "Slurm's reason")
        remote.run("scontrol", "hold", str(job))
        remote.wait_until(lambda: remote.job(job)["reason"] == "JobHeldUser", 20, "the hold")
        remote.run("scontrol", "update", f"JobId={job}", "TimeLimit=5")
        told = ("scontrol", "show", "job", native)
        remote.wait_until(lambda: "Reason=JobHeldUser" in site.slurm(*told), 20, "Slurm's own hold")
        remote.wait_until(lambda: remote.task(job, "a")["time_limit"] == 300, 20, "the new limit")
        assert "TimeLimit=00:07:00" in site.slurm("scontrol", "show", "job", native)
        remote.run("scontrol", "release", str(job))
        remote.wait_until(lambda: remote.job(job)["reason"] in ("Resources", "Priority", "None"), 20, "the release")
        remote.run("scancel", str(job))
        remote.until(job, "CANCELLED")
        assert "CANCELLED" in site.slurm("squeue", "-ht", "all", "-j", native, "-o", "%T")


def test_one_task_is_cancelled_and_another_restarted(remote: Span) -> None:
    stop = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.05; done"
    job = start(
        remote,
        group({"trainer": {"run": stop}, "s1": {"run": SERVE}, "s2": {"run": SERVE}}, primary_tasks=["trainer"]),
    )
    for name in ("s1", "s2"):
        until_said(remote, job, name, "up")
    remote.until(job, "RUNNING", task="trainer")
    remote.run("scancel", f"{job}+1")
    remote.until(job, "CANCELLED", task="s1")
    remote.run("restart", str(job), "s2")
    remote.wait_until(lambda: len(remote.task(job, "s2")["attempts"]) == 2, 20, "a second attempt")
    remote.until(job, "RUNNING", task="s2")
    assert remote.task(job, "trainer")["state"] == "RUNNING"
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")


def test_what_no_nodes_can_hold_is_refused_at_submission(remote: Span) -> None:
    file = remote.folder / "wide.yaml"
    file.write_text(group({"a": {"num_nodes": 9, "run": "true"}}))
    # A verdict is waited for some seconds, which are not for the connection.
    remote.run("sinfo", "-M", "rig")
    done = remote.run("submit", str(file), "-M", "rig", check=False)
    assert done.returncode != 0
    assert "Requested node configuration is not available" in done.stderr


def test_a_hetjob_is_one_group(remote: Span, site: Site) -> None:
    tell = "echo $SLURM_JOB_PARTITION; getent ahostsv4 a-0.g; getent ahostsv4 b-0.g"
    job = start(remote, group({"a": {"run": tell}, "b": {"run": tell, "slurm": {"partition": "short"}}}))
    remote.until(job, "COMPLETED")
    assert "a-0.g" in remote.log(job, "b") and "b-0.g" in remote.log(job, "a")
    native = native_of(remote, job)
    until_kept(remote, site, native, "JobID,State", {f"{native}+{number}|COMPLETED" for number in range(2)})


def test_a_hetjob_is_cancelled_as_a_whole_with_its_grace(remote: Span, site: Site) -> None:
    flush = "trap 'sleep 7; echo flushed; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    tasks: dict[str, dict[str, Any]] = {"a": {"run": flush}, "b": {"run": flush, "slurm": {"partition": "short"}}}
    job = start(remote, group(tasks))
    for name in tasks:
        until_said(remote, job, name, "up")
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")
    assert all("flushed" in remote.log(job, name) for name in tasks)
    native = native_of(remote, job)
    remote.wait_until(lambda: not site.slurm("squeue", "-hj", native, "-o", "%i"), 20, "nothing to be left")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site without accounting that ends what is cancelled quickly and forgets jobs soon."""
    lines = {
        "AccountingStorageType=": "AccountingStorageType=accounting_storage/none",
        "AccountingStorageHost=": "",
        "KillWait=": "KillWait=2",
        "MinJobAge=": "MinJobAge=2",
    }
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("bare-groups", lines)) as rig, open_access(rig, folder) as access:
        yield Site(access)


def test_the_journal_tells_what_slurm_has_forgotten(bare: Site, tmp_path: Path, wait_until: WaitUntil) -> None:
    span = connect(bare, tmp_path, wait_until)
    try:
        gate = Gate(bare)
        job = start(span, group({"a": {"run": f"{gate.wait}; exit 5"}, "b": {"run": SERVE}}, primary_tasks=["a"]))
        span.until(job, "RUNNING")
        span.kill_daemon()
        gate.open()
        wait_until(lambda: not bare.slurm("squeue", "-ht", "all"), 120, "Slurm to forget it")
        shown = span.until(job, "FAILED")
        assert shown["exit_code"] == 5
        flush = "trap 'sleep 5; echo flushed; exit 0' TERM; echo up; while :; do sleep 0.1; done"
        job = start(span, group({"a": {"run": flush}, "b": {"run": flush}}))
        until_said(span, job, "a", "up")
        began = time.monotonic()
        span.run("scancel", str(job))
        span.until(job, "CANCELLED")
        assert time.monotonic() - began >= 5
        assert "flushed" in span.log(job, "a")
    finally:
        span.close()
