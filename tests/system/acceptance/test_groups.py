"""Job groups on the local cluster, as users see them. Rows JG of docs/acceptance.md."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon

UP = "touch $OVERSPAN_RUN_DIR/$OVERSPAN_TASK.up; "
SERVE = f"trap 'echo term; exit 0' TERM; echo up; {UP}while :; do sleep 0.05; done"
UNTIL_STOP = "until [ -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.05; done; "


def after(*tasks: str) -> str:
    """Wait until these tasks of the group serve: what comes next finds their traps in place."""
    return "".join(f"until [ -e $OVERSPAN_RUN_DIR/{task}.up ]; do sleep 0.05; done; " for task in tasks)


def run_dir(span: Any, job: int) -> Path:
    """The folder that all tasks of a job share."""
    return Path(span.state) / f"clusters/local/runs/{job}"


def read_deadlines(span: Any, job: int) -> dict[str, list[float]]:
    """When the tasks were told to end at the latest, each time that they were told."""
    found: dict[str, list[float]] = {}
    for line in (run_dir(span, job) / "notice").read_text().splitlines():
        notice = json.loads(line)
        found.setdefault(notice["task"], []).append(notice["deadline"])
    return found


def group(tasks: dict[str, dict[str, Any]], **header: Any) -> str:
    """A job group's YAML from plain data."""
    import yaml

    documents = [{"name": "g", "execution": "parallel", **header}]
    documents += [{"name": name, "resources": {"cpus": 0.1}, **task} for name, task in tasks.items()]
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def test_five_tasks_are_one_job_with_named_members(span: Any) -> None:
    names = ["data-server", "rollout", "reward", "replay", "trainer"]
    job = span.submit(group({name: {"run": "echo $OVERSPAN_HOST"} for name in names}))
    span.run("wait", str(job))
    shown = span.job(job)
    assert [task["name"] for task in shown["tasks"]] == names
    assert [task["raw_id"] for task in shown["tasks"]] == [job + place for place in range(5)]
    assert span.log(job, "trainer").strip() == "trainer-0.g"
    assert span.wrap("true") == job + 5


@pytest.mark.own_daemon
def test_auxiliaries_end_after_their_delay_and_the_job_is_completed_everywhere(span: Any) -> None:
    job = span.submit(
        group(
            {"trainer": {"run": after("server")}, "server": {"run": SERVE}},
            primary_tasks=["trainer"],
            termination_delay="1s",
        )
    )
    waited = span.run("wait", str(job))
    assert waited.returncode == 0
    assert span.job(job)["state"] == "COMPLETED"
    assert span.task(job, "server")["state"] == "COMPLETED"
    assert span.task(job, "server")["reason"] == "PrimariesDone"
    assert "term" in span.log(job, "server")
    rows = span.run("sacct", "-j", str(job), "-X", "-n", "-P", "-o", "JobID,State,ExitCode").stdout.split()
    assert rows and all(row.split("|")[1:] == ["COMPLETED", "0:0"] for row in rows), rows
    assert span.run("squeue", "--noheader", "-t", "all", "-o", "%T").stdout.split() == ["COMPLETED"] * len(rows)


def test_a_failing_primary_ends_everything_at_once(span: Any) -> None:
    job = span.submit(
        group(
            {"a": {"run": after("b", "server") + "exit 3"}, "b": {"run": SERVE}, "server": {"run": SERVE}},
            primary_tasks=["a", "b"],
            # Far beyond the time that the test has.
            termination_delay="2h",
        )
    )
    waited = span.run("wait", str(job), check=False)
    assert waited.returncode == 3
    shown = span.job(job)
    assert (shown["state"], shown["exit_code"]) == ("FAILED", 3)
    states = {task["name"]: (task["state"], task["reason"]) for task in shown["tasks"]}
    assert states == {
        "a": ("FAILED", "NonZeroExitCode"),
        "b": ("CANCELLED", "PrimaryFailed"),
        "server": ("CANCELLED", "PrimaryFailed"),
    }
    assert "term" in span.log(job, "b") and "term" in span.log(job, "server")


def test_delays_per_task_and_the_slow_one_is_still_running_in_between(span: Any) -> None:
    job = span.submit(
        group(
            {
                "trainer": {"run": after("fast", "later", "slow")},
                "fast": {"run": SERVE},
                "later": {"run": SERVE},
                "slow": {"run": UP + UNTIL_STOP},
            },
            primary_tasks=["trainer"],
            termination_delay={"default": "1s", "later": "3s", "slow": "2h"},
        )
    )
    for name in ("fast", "later"):
        span.until(job, "COMPLETED", task=name)
    assert span.task(job, "slow")["state"] == "RUNNING"
    assert span.job(job)["state"] == "COMPLETING"
    (run_dir(span, job) / "stop").touch()
    span.run("wait", str(job))
    ends = {task["name"]: task["ended_at"] for task in span.job(job)["tasks"]}
    delays = {name: told[0] - ends["trainer"] for name, told in read_deadlines(span, job).items()}
    assert delays == pytest.approx({"fast": 1, "later": 3, "slow": 7200}, abs=0.01)
    # Not before; how much later is the machine's affair.
    assert 0.9 <= ends["fast"] - ends["trainer"] < 60
    assert 2.9 <= ends["later"] - ends["trainer"] < 60


def test_notice_at_the_start_of_the_delay_and_its_signal(span: Any) -> None:
    server = (
        "trap 'echo told $(cat $OVERSPAN_RUN_DIR/notice)' USR1; trap 'echo term; exit 0' TERM;"
        f"echo up; {UP}while :; do sleep 0.05; done"
    )
    job = span.submit(
        group(
            {"trainer": {"run": after("server")}, "server": {"run": server, "notice_signal": "USR1"}},
            primary_tasks=["trainer"],
            termination_delay="2s",
        )
    )
    span.run("wait", str(job))
    said = span.log(job, "server", "--stream", "output").strip()
    assert 0 < said.index("told") < said.index('"kind": "primaries_done"') and said.endswith("term")
    # It ran on after the notice, to the end of the delay.
    (deadline,) = read_deadlines(span, job)["server"]
    assert deadline - span.task(job, "trainer")["ended_at"] == pytest.approx(2, abs=0.01)
    assert span.task(job, "server")["ended_at"] >= deadline - 0.1


def test_the_delay_survives_a_crash_of_the_daemon(span: Any) -> None:
    job = span.submit(
        group(
            {"trainer": {"run": after("server")}, "server": {"run": SERVE}},
            primary_tasks=["trainer"],
            termination_delay="3s",
        )
    )
    span.until(job, "COMPLETED", task="trainer")
    span.kill_daemon()
    span.run("wait", str(job))
    ends = {task["name"]: task["ended_at"] for task in span.job(job)["tasks"]}
    (deadline,) = read_deadlines(span, job)["server"]
    assert deadline - ends["trainer"] == pytest.approx(3, abs=0.01)
    assert 2.9 <= ends["server"] - ends["trainer"] < 60


@pytest.mark.parametrize(
    ("policy", "state", "attempts"),
    [("ignore", "COMPLETED", 1), ("restart", "COMPLETED", 2), ("fail_group", "FAILED", 1)],
)
def test_policies_for_a_failing_auxiliary(span: Any, policy: str, state: str, attempts: int) -> None:
    helper = f"[ $OVERSPAN_ATTEMPT -gt 0 ] || exit 4; {SERVE}"
    job = span.submit(
        group(
            {
                "trainer": {"run": UNTIL_STOP},
                "helper": {"run": helper, "on_failure": policy, "backoff": {"first": 0.1}},
            },
            primary_tasks=["trainer"],
        )
    )

    def shown() -> bool:
        """Whether the policy has had its effect; the trainer ends after that."""
        made = span.task(job, "helper")["attempts"]
        return len(made) == attempts and made[0]["state"] == "FAILED"

    span.wait_until(shown, 20, "the helper's failure")
    if policy != "fail_group":
        (run_dir(span, job) / "stop").touch()
    span.run("wait", str(job), check=False)
    assert span.job(job)["state"] == state
    assert len(span.task(job, "helper")["attempts"]) == attempts


def test_a_killed_member_comes_back_alone_under_its_name(span: Any) -> None:
    tell = "echo pid $$; " + SERVE
    job = span.submit(
        group(
            {
                "trainer": {"run": "while [ ! -e $OVERSPAN_RUN_DIR/stop ]; do sleep 0.05; done"},
                "server": {"run": tell, "backoff": {"first": 0.1}},
            },
            primary_tasks=["trainer"],
        )
    )
    for name in ("trainer", "server"):
        span.until(job, "RUNNING", task=name)
    span.wait_until(lambda: "up" in span.log(job, "server"), 10, "the server")
    trainer = span.task(job, "trainer")["started_at"]
    span.run("restart", str(job), "server")
    span.wait_until(lambda: len(span.task(job, "server")["attempts"]) == 2, 10, "a second attempt")
    span.until(job, "RUNNING", task="server")
    span.wait_until(lambda: "up" in span.log(job, "server", "--attempt", "1"), 10, "the server again")
    assert span.task(job, "trainer")["started_at"] == trainer
    assert len(span.task(job, "trainer")["attempts"]) == 1
    first, second = (span.log(job, "server", "--attempt", str(number)) for number in (0, 1))
    assert first.split()[1] != second.split()[1]
    (run_dir(span, job) / "stop").touch()
    span.run("wait", str(job))


def test_logs_of_one_member_and_of_all_with_prefixes(span: Any) -> None:
    job = span.submit(
        group({"a": {"run": "echo alpha"}, "b": {"num_nodes": 2, "run": "echo beta $OVERSPAN_NODE_INDEX"}})
    )
    span.run("wait", str(job))
    assert span.log(job, "a") == "alpha\n"
    assert span.log(job, "b", "--node", "1") == "beta 1\n"
    merged = span.log(job).splitlines()
    assert sorted(line.split("|")[0].strip() for line in merged) == ["a-0", "b-0", "b-1"]
    assert span.log("g", "a") == "alpha\n"


def test_cancel_is_parallel(span: Any) -> None:
    stubborn = f"trap 'echo term; {UNTIL_STOP}exit 0' TERM; echo up; while :; do sleep 0.05; done"
    job = span.submit(group({f"m{place}": {"run": stubborn, "grace_period": "2h"} for place in range(10)}))
    span.until(job, "RUNNING")
    span.wait_until(lambda: span.log(job).count("up") == 10, 20, "all members")
    span.run("scancel", str(job))
    # All are told although none has ended.
    # Whole lines: a shell may also say what it was at when the signal came.
    span.wait_until(lambda: span.log(job).count("| term\n") == 10, 20, "the signal to all")
    (run_dir(span, job) / "stop").touch()
    span.until(job, "CANCELLED")


def test_cancel_of_one_declared_member_is_recorded(span: Any) -> None:
    job = span.submit(group({"trainer": {"run": UNTIL_STOP}, "server": {"run": SERVE}}, primary_tasks=["trainer"]))
    span.until(job, "RUNNING", task="trainer")
    span.until(job, "RUNNING", task="server")
    span.run("scancel", f"{job}+1")
    assert span.until(job, "CANCELLED", task="server")
    (run_dir(span, job) / "stop").touch()
    span.run("wait", str(job))
    assert span.job(job)["state"] == "COMPLETED"
    assert any(row["task"] == "server" and row["end"] == "CANCELLED" for row in span.timeline(job))


def test_names_addresses_and_variables_of_every_member(span: Any) -> None:
    tell = (
        "for n in $(echo $OVERSPAN_MEMBERS | tr , ' '); do getent hosts $n || exit 9; done;"
        "echo $OVERSPAN_WORKER_ADDRS $SKYPILOT_NODE_RANK $SKYPILOT_NUM_NODES $SKYPILOT_JOBGROUP_NAME"
        " $SLURM_PROCID $SLURM_NTASKS $SLURM_HET_SIZE $(echo $SKYPILOT_NODE_IPS | wc -w)"
    )
    if span.run("check", "local", "--json", check=False).stdout.count('"env"'):
        pytest.skip("names: neither namespaces nor libnss_wrapper work on this machine")
    job = span.submit(group({"head": {"run": "true"}, "worker": {"num_nodes": 3, "run": tell}}))
    span.run("wait", str(job))
    for index in range(3):
        words = span.log(job, "worker", "--node", str(index)).splitlines()[-1].split()
        assert len(words[0].split(",")) == 3
        assert words[1:] == [str(index), "3", "g", str(index), "3", "2", "3"]


def test_shared_node_has_its_own_name_logs_and_end(span: Any) -> None:
    job = span.submit(
        group(
            {
                "trainer": {"run": after("loader") + "echo $OVERSPAN_HOST"},
                "loader": {"run": f"echo $OVERSPAN_HOST; {SERVE}", "share": "trainer"},
            },
            primary_tasks=["trainer"],
        )
    )
    span.run("wait", str(job))
    assert span.log(job, "loader").startswith("loader-0.g")
    assert span.log(job, "trainer") == "trainer-0.g\n"
    nodes = {task["node_list"] for task in span.job(job)["tasks"]}
    assert len(nodes) == 1


@pytest.mark.own_daemon
def test_plan_prints_and_touches_nothing(span: Any) -> None:
    file = span.folder / "plan.yaml"
    file.write_text(group({"a": {"run": "touch made"}, "b": {"num_nodes": 2, "run": "true"}}))
    text = span.run("plan", str(file)).stdout
    assert "a-0" in text and "b-1" in text and "touch made" in text
    assert not (span.folder / "made").exists()
    assert span.run("squeue", "--noheader", "-t", "all").stdout == ""


def test_members_without_a_network_have_no_names(span: Any) -> None:
    tell = "getent hosts b-0.g && exit 9; hostname; echo $OVERSPAN_TASK"
    job = span.submit(group({"a": {"run": tell}, "b": {"run": tell}}, inter_connection=False))
    span.run("wait", str(job))
    assert span.log(job, "a").split() == [os.uname().nodename, "a"]
    assert span.log(job, "b").split() == [os.uname().nodename, "b"]


@pytest.mark.own_daemon
def test_gang_waits_for_room_for_all_and_two_groups_both_finish(span: Any) -> None:
    span.config.write_text("clusters:\n  local: {kind: local, cpus: 4, memory: 8G}\n")
    wide = {f"m{place}": {"resources": {"cpus": 1}, "run": "echo run; sleep 0.3"} for place in range(3)}
    jobs = [span.submit(group(wide, name=f"g{number}")) for number in range(3)]
    for job in jobs:
        span.run("wait", str(job))
    spans = sorted(
        (min(task["started_at"] for task in span.job(job)["tasks"]), span.job(job)["ended_at"]) for job in jobs
    )
    assert all(earlier[1] <= later[0] for earlier, later in itertools.pairwise(spans))
