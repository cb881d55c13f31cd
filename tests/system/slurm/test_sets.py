"""Groups as sets on a real Slurm: one native job for each task, so that one task is replaced alone."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rigs.plugin import rig_or_skip
from tests.rigs.reach import open_access
from tests.rigs.slurm import Variant
from tests.system.conftest import Span
from tests.system.slurm.conftest import Site
from tests.system.slurm.fillers import fill
from tests.system.slurm.gates import Gate
from tests.system.slurm.groups import SERVE, connect, group, read_time, start, until_said
from tests.system.slurm.sets import make_set, natives, stop, until_nothing_left
from tests.waiting import WaitUntil


@pytest.fixture
def remote(site: Site, tmp_path: Path, wait_until: WaitUntil) -> Iterator[Span]:
    span = connect(site, tmp_path, wait_until)
    yield span
    span.close()


def test_a_set_runs_to_its_end_and_names_resolve_both_ways(remote: Span, site: Site) -> None:
    find = "for host in trainer-0.g trainer-1.g server-0.g; do getent hosts $host || exit 9; done"
    gate = Gate(site)
    job = start(
        remote,
        make_set(
            {
                "trainer": {"num_nodes": 2, "run": f"{find}; echo in $SLURM_JOB_ID; {gate.wait}; date +end=%s.%N"},
                "server": {"run": f"{find}; echo in $SLURM_JOB_ID; {SERVE}"},
            },
            primary_tasks=["trainer"],
        ),
    )
    until_said(remote, job, "server", "up")
    jobs = natives(remote, site, job)
    assert {task: len(numbers) for task, numbers in jobs.items()} == {"trainer": 1, "server": 1}
    gate.open()
    shown = remote.until(job, "COMPLETED")
    states = {task["name"]: (task["state"], task["exit_code"], len(task["attempts"])) for task in shown["tasks"]}
    assert states == {"trainer": ("COMPLETED", 0, 1), "server": ("COMPLETED", 0, 1)}
    for task in ("trainer", "server"):
        assert f"in {jobs[task][0]}" in remote.log(job, task)
    ended = read_time(remote.log(job, "trainer", "--node", "1"), "end")
    assert 0 < read_time(remote.log(job, "server"), "term") - ended < 60
    until_nothing_left(remote, site, job)


def wait_for(file: str) -> str:
    """Shell text that names resolve in until there is a file."""
    return f"echo at $SLURMD_NODENAME; while [ ! -e {file} ]; do getent ahostsv4 server-0.g; sleep 0.2; done"


def test_a_lost_node_costs_one_task_its_attempt_and_the_others_follow_its_name(remote: Span, site: Site) -> None:
    job = start(
        remote,
        make_set(
            {
                "trainer": {"run": wait_for("$OVERSPAN_RUN_DIR/stop"), "slurm": {"nodelist": "node1"}},
                "server": {
                    "run": f"echo at $SLURMD_NODENAME $(hostname -i); getent hosts trainer-0.g; {SERVE}",
                    "slurm": {"exclude": "node1"},
                },
            },
            primary_tasks=["trainer"],
        ),
    )
    until_said(remote, job, "server", "up")
    until_said(remote, job, "trainer", "server-0.g")
    first = find_address(remote, job)
    node = remote.task(job, "server")["node_list"]
    update = ["scontrol", "update", f"NodeName={node}"]
    # Down alone, it would come back by itself and have the server again.
    for state in ("DRAIN", "DOWN"):
        assert site.rig.run([*update, f"State={state}", "Reason=test"], user="root").rc == 0
    try:
        remote.wait_until(lambda: len(remote.task(job, "server")["attempts"]) == 2, 20, "a second attempt")
        remote.until(job, "RUNNING", task="server")
    finally:
        site.rig.run([*update, "State=RESUME"], user="root")
    began = time.monotonic()
    remote.wait_until(lambda: find_address(remote, job) not in ("", first), 20, "the new address")
    assert time.monotonic() - began < 60
    assert remote.task(job, "server")["node_list"] not in ("", node)
    stop(remote, site, job)
    shown = remote.until(job, "COMPLETED")
    counts = {task["name"]: len(task["attempts"]) for task in shown["tasks"]}
    assert counts == {"trainer": 1, "server": 2}
    assert shown["tasks"][1]["attempts"][0]["state"] == "NODE_FAIL"
    until_nothing_left(remote, site, job)


def find_address(span: Span, job: int) -> str:
    """Where the trainer has found the server last."""
    found = re.findall(r"^(\S+)\s+STREAM\s+server-0", span.log(job, "trainer"), re.MULTILINE)
    return str(found[-1]) if found else ""


def test_a_killed_job_is_replaced_alone_whatever_becomes_of_the_daemon(remote: Span, site: Site) -> None:
    wait = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.1; done; echo over"
    tasks: dict[str, dict[str, Any]] = {"trainer": {"run": wait}, "server": {"run": f"echo in $SLURM_JOB_ID; {SERVE}"}}
    job = start(remote, make_set(tasks, primary_tasks=["trainer"]))
    until_said(remote, job, "server", "up")
    first = natives(remote, site, job)["server"][0]
    remote.kill_daemon()
    site.slurm("scancel", str(first))
    remote.wait_until(lambda: len(remote.task(job, "server")["attempts"]) == 2, 20, "a second attempt")
    remote.kill_daemon()
    remote.until(job, "RUNNING", task="server")
    jobs = natives(remote, site, job)
    assert {task: len(numbers) for task, numbers in jobs.items()} == {"trainer": 1, "server": 2}
    until_said(remote, job, "server", f"in {jobs['server'][1]}")
    remote.kill_daemon()
    stop(remote, site, job)
    remote.wait_until(lambda: is_over(site, jobs["trainer"][0]), 20, "the trainer's end")
    shown = remote.until(job, "COMPLETED")
    assert {task["name"]: len(task["attempts"]) for task in shown["tasks"]} == {"trainer": 1, "server": 2}
    assert natives(remote, site, job) == jobs
    assert remote.log(job, "trainer") == "over\n"
    until_nothing_left(remote, site, job)


def is_over(site: Site, native: int) -> bool:
    """Whether Slurm says that a job has ended well."""
    return "COMPLETED" in site.slurm("squeue", "-ht", "all", "-j", str(native), "-o", "%T")


def test_an_error_is_tried_again_on_the_same_nodes(remote: Span, site: Site) -> None:
    once = "[ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; echo attempt $OVERSPAN_ATTEMPT in $SLURM_JOB_ID"
    recovery = {"cpus": 1, "memory": "100M", "job_recovery": {"max_restarts_on_errors": 1}}
    job = start(remote, make_set({"trainer": {"run": once, "resources": recovery}, "other": {"run": "sleep 1"}}))
    shown = remote.until(job, "COMPLETED")
    assert [attempt["exit_code"] for attempt in shown["tasks"][0]["attempts"]] == [4, 0]
    jobs = natives(remote, site, job)
    assert f"attempt 1 in {jobs['trainer'][0]}" in remote.log(job, "trainer")
    assert len(jobs["trainer"]) == 1


def test_nodes_are_given_back_where_not_all_jobs_start_in_time(remote: Span, site: Site) -> None:
    with fill(site, remote.wait_until, "-w", "node2", "--exclusive"):
        tasks: dict[str, dict[str, Any]] = {
            "a": {"run": "echo ran", "slurm": {"nodelist": "node1"}},
            "b": {"run": "echo ran", "slurm": {"nodelist": "node2"}},
        }
        job = start(remote, make_set(tasks, start_timeout="10s"))
        remote.wait_until(lambda: len(natives(remote, site, job).get("b", [])) >= 2, 40, "another try")
        before = natives(remote, site, job)
        remote.wait_until(lambda: not site.slurm("squeue", "-hj", str(before["b"][0]), "-o", "%i"), 20, "a withdrawal")
        assert not any(task["attempts"] for task in remote.job(job)["tasks"])
    shown = remote.until(job, "COMPLETED", timeout=60)
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1]
    assert remote.log(job, "a") == "ran\n"


def test_who_comes_late_fails_nobody(remote: Span, site: Site) -> None:
    with fill(site, remote.wait_until, "-w", "node2", "--exclusive"):
        tasks: dict[str, dict[str, Any]] = {
            "early": {"run": "echo ran", "slurm": {"nodelist": "node1"}},
            "late": {"run": "getent hosts early-0.g", "slurm": {"nodelist": "node2"}},
        }
        job = start(remote, make_set(tasks))
        remote.wait_until(lambda: "early" in natives(remote, site, job), 20, "the native jobs")
        number = str(natives(remote, site, job)["early"][0])
        elapsed = ("squeue", "-hj", number, "-t", "R", "-o", "%M")
        remote.wait_until(lambda: site.slurm(*elapsed).strip() >= "0:10", 30, "ten seconds at the start gate")
        assert not any(task["attempts"] for task in remote.job(job)["tasks"])
    shown = remote.until(job, "COMPLETED", timeout=60)
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1]
    assert [len(numbers) for numbers in natives(remote, site, job).values()] == [1, 1]


def test_a_waiting_set_is_cancelled_as_a_whole_and_a_running_one_with_its_grace(remote: Span, site: Site) -> None:
    with fill(site, remote.wait_until, "-N3", "--exclusive"):
        job = start(remote, make_set({"a": {"run": "true"}, "b": {"run": "true"}}))
        remote.wait_until(lambda: remote.job(job)["reason"] in ("Resources", "Priority"), 20, "Slurm's reason")
        remote.run("scontrol", "hold", str(job))
        reasons = ("squeue", "-h", "--me", "-t", "PD", "-o", "%r")
        remote.wait_until(lambda: set(site.slurm(*reasons).split()) == {"JobHeldUser"}, 20, "the hold")
        remote.run("scontrol", "release", str(job))
        remote.wait_until(lambda: "JobHeldUser" not in site.slurm(*reasons), 20, "the release")
        remote.run("scancel", str(job))
        remote.until(job, "CANCELLED")
        until_nothing_left(remote, site, job)
    flush = "trap 'sleep 7; echo flushed; exit 0' TERM; echo up; while :; do sleep 0.1; done"
    job = start(remote, make_set({"a": {"run": flush}, "b": {"run": flush}, "c": {"run": SERVE}}))
    for name in ("a", "b", "c"):
        until_said(remote, job, name, "up")
    remote.run("scancel", f"{job}+2")
    remote.until(job, "CANCELLED", task="c")
    remote.until(job, "CANCELLED")
    assert all("flushed" in remote.log(job, name) for name in ("a", "b"))
    until_nothing_left(remote, site, job)


def test_a_replacement_that_slurm_refuses_for_good_ends_its_task_in_slurms_words(remote: Span, site: Site) -> None:
    wait = "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.1; done"
    tasks: dict[str, dict[str, Any]] = {
        "trainer": {"run": wait},
        "server": {"run": SERVE, "slurm": {"partition": "short"}},
    }
    job = start(remote, make_set(tasks, primary_tasks=["trainer"]))
    until_said(remote, job, "server", "up")
    update = ["scontrol", "update", "PartitionName=short"]
    assert site.rig.run([*update, "AllowGroups=root"], user="root").rc == 0
    try:
        site.slurm("scancel", str(natives(remote, site, job)["server"][0]))
        server = remote.until(job, "FAILED", task="server")
    finally:
        assert site.rig.run([*update, "AllowGroups=ALL"], user="root").rc == 0
    assert len(server["attempts"]) == 2 and server["reason"] == "BadConstraints"
    assert "not permitted to use this partition" in remote.run("show", str(job)).stdout
    assert len(natives(remote, site, job)["server"]) == 1
    stop(remote, site, job)
    remote.wait_until(lambda: remote.job(job)["ended_at"], 20, "the end of the group")
    until_nothing_left(remote, site, job)


def test_an_attempt_whose_job_waits_in_slurms_queue_is_not_waited_for(remote: Span, site: Site) -> None:
    tasks: dict[str, dict[str, Any]] = {
        "trainer": {"run": SERVE},
        "server": {"run": SERVE, "slurm": {"partition": "short"}},
    }
    job = start(remote, make_set(tasks, primary_tasks=["trainer"]))
    for name in tasks:
        until_said(remote, job, name, "up")
    update = ["scontrol", "update", "PartitionName=short"]
    # What is in a partition that is down waits there, and what runs goes on.
    assert site.rig.run([*update, "State=DOWN"], user="root").rc == 0
    try:
        site.slurm("scancel", str(natives(remote, site, job)["server"][0]))
        remote.wait_until(lambda: len(natives(remote, site, job)["server"]) == 2, 20, "a job that waits")
        waiting = str(natives(remote, site, job)["server"][1])
        assert site.slurm("squeue", "-hj", waiting, "-o", "%T").strip() == "PENDING"
        remote.run("scancel", str(job))
        remote.until(job, "CANCELLED")
        until_nothing_left(remote, site, job)
    finally:
        assert site.rig.run([*update, "State=UP"], user="root").rc == 0


def test_a_job_that_an_operator_requeues_is_replaced_and_runs_no_second_time(remote: Span, site: Site) -> None:
    tasks: dict[str, dict[str, Any]] = {"trainer": {"run": SERVE}, "server": {"run": f"echo in $SLURM_JOB_ID; {SERVE}"}}
    job = start(remote, make_set(tasks, primary_tasks=["trainer"]))
    for name in tasks:
        until_said(remote, job, name, "up")
    first = str(natives(remote, site, job)["server"][0])
    for words in (["update", f"JobId={first}", "Requeue=1"], ["requeue", first]):
        assert site.rig.run(["scontrol", *words], user="root").rc == 0
    remote.wait_until(lambda: len(remote.task(job, "server")["attempts"]) == 2, 20, "a second attempt")
    remote.until(job, "RUNNING", task="server")
    second = natives(remote, site, job)["server"][1]
    until_said(remote, job, "server", f"in {second}")
    state = ("squeue", "-ht", "all", "-j", first, "-o", "%T")
    remote.wait_until(lambda: site.slurm(*state).strip() == "CANCELLED", 20, "the end of the first one")
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")
    until_nothing_left(remote, site, job)


def find_limits(span: Span, site: Site, job: int) -> set[str]:
    """The time limits of a set's native jobs as Slurm has them."""
    numbers = [number for listed in natives(span, site, job).values() for number in listed]
    texts = [site.slurm("scontrol", "show", "job", str(number)) for number in numbers]
    return {match[1] for text in texts if (match := re.search(r"TimeLimit=(\S+)", text))}


def test_a_new_wall_time_reaches_every_native_job_or_is_not_in_force(remote: Span, site: Site) -> None:
    job = start(remote, make_set({"a": {"run": SERVE, "time": "10m"}, "b": {"run": SERVE, "time": "10m"}}))
    for name in ("a", "b"):
        until_said(remote, job, name, "up")
    assert find_limits(remote, site, job) == {"00:12:00"}
    remote.run("scontrol", "update", f"JobId={job}", "TimeLimit=5")
    remote.wait_until(lambda: find_limits(remote, site, job) == {"00:07:00"}, 20, "the new limits")
    show = ("scontrol", "show", "job", str(job))
    remote.wait_until(lambda: "TimeLimit=00:05:00" in remote.run(*show).stdout, 20, "the new wall time")
    # Only an operator may lengthen the limit of a running job.
    remote.run("scontrol", "update", f"JobId={job}", "TimeLimit=20")
    log = remote.state / "daemon.log"
    remote.wait_until(lambda: "Access/permission denied" in log.read_text(), 20, "Slurm's refusal")
    assert "TimeLimit=00:05:00" in remote.run(*show).stdout
    assert find_limits(remote, site, job) == {"00:07:00"}
    remote.run("scancel", str(job))
    remote.until(job, "CANCELLED")


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site whose scheduler starts no hetjobs."""
    lines = {"SchedulerType=": "SchedulerType=sched/builtin"}
    folder = tmp_path_factory.mktemp("ssh")
    with rig_or_skip(Variant("plain-sets", lines)) as rig, open_access(rig, folder) as access:
        yield Site(access)


def test_unlike_nodes_are_a_set_where_no_hetjob_starts(plain: Site, tmp_path: Path, wait_until: WaitUntil) -> None:
    span = connect(plain, tmp_path, wait_until)
    try:
        find = "getent hosts a-0.g && getent hosts b-0.g && echo in $SLURM_JOB_PARTITION"
        job = start(span, group({"a": {"run": find}, "b": {"run": find, "slurm": {"partition": "short"}}}))
        span.until(job, "COMPLETED")
        assert [f"in {name}" in span.log(job, task) for task, name in (("a", "main"), ("b", "short"))] == [True, True]
        assert {task: len(found) for task, found in natives(span, plain, job).items()} == {"a": 1, "b": 1}
    finally:
        span.close()
