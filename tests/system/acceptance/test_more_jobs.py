"""More of single jobs and pipelines on the local cluster. Rows MJ, SL25 and UX of docs/acceptance.md."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.shared_daemon


def lose_node(span: Any, **keys: Any) -> int:
    """A job whose node was lost while its program ran; the second attempt writes `again`."""
    run = "echo shim $PPID; [ $OVERSPAN_ATTEMPT -gt 0 ] && { echo again; exit 0; }; sleep 600"
    text = json.dumps({"name": "lost", "resources": {"cpus": 0.1}, "backoff": {"first": 0.1}, "run": run, **keys})
    job: int = span.submit(text)
    span.wait_until(lambda: "shim" in span.log(job), 10, "the start")
    os.kill(int(span.log(job).split()[1]), signal.SIGKILL)
    return job


def test_a_lost_node_is_recovered_from_and_the_users_budget_is_untouched(span: Any) -> None:
    job = lose_node(span, max_restarts_on_errors=0)
    assert span.run("wait", str(job)).returncode == 0
    attempts = span.job(job)["tasks"][0]["attempts"]
    assert [attempt["state"] for attempt in attempts] == ["NODE_FAIL", "COMPLETED"]
    assert "again" in span.log(job)


def test_a_script_that_starts_again_after_a_lost_node_counts_as_requeued(span: Any) -> None:
    """As in Slurm, whose checkpoint scripts look at SLURM_RESTART_COUNT to go on."""
    start = "echo shim $PPID; echo count ${SLURM_RESTART_COUNT:-none}"
    job = span.wrap(f"{start}; test $OVERSPAN_ATTEMPT -gt 0 || sleep 600")
    span.wait_until(lambda: "count none" in span.log(job), 10, "the start")
    os.kill(int(span.log(job).split()[1]), signal.SIGKILL)
    assert span.run("wait", str(job)).returncode == 0
    assert "count 1" in span.log(job)
    assert "Restarts=1 " in span.run("scontrol", "show", "job", str(job)).stdout
    assert span.job(job)["restarts"] == 1


def test_a_lost_node_without_recoveries_is_node_fail(span: Any) -> None:
    job = lose_node(span, max_recoveries=0)
    span.run("wait", str(job), check=False)
    assert (span.job(job)["state"], span.job(job)["reason"]) == ("NODE_FAIL", "NodeDown")


def test_a_restart_in_place_keeps_what_the_job_has(span: Any) -> None:
    run = 'echo "$OVERSPAN_ATTEMPT $OVERSPAN_ADDR ${SLURM_RESTART_COUNT:-none}" >> $OVERSPAN_RUN_DIR/kept; sleep 600'
    job = span.submit(json.dumps({"name": "kept", "resources": {"cpus": 0.1}, "run": run}))
    kept = span.state / f"clusters/local/runs/{job}/kept"
    span.wait_until(lambda: kept.exists() and kept.read_text().endswith("\n"), 10, "the start")
    span.until(job, "RUNNING")
    span.run("restart", str(job))
    lines = span.wait_until(lambda: (found := kept.read_text().splitlines())[1:] and found, 10, "the second attempt")
    first, second = (line.split() for line in lines)
    assert (first[0], second[0]) == ("0", "1")
    assert first[1:] == second[1:] and second[2] == "none"
    assert span.job(job)["restarts"] == 0
    span.run("scancel", str(job))


@pytest.mark.own_daemon
def test_a_job_that_is_over_leaves_one_file_and_can_be_started_again(span: Any) -> None:
    run = "echo ran $SLURM_RESTART_COUNT; while [ ! -e $OVERSPAN_RUN_DIR/go ]; do sleep 0.05; done"
    job = span.submit(json.dumps({"name": "packed", "resources": {"cpus": 0.1}, "run": run}))
    folder = span.state / f"clusters/local/runs/{job}"
    span.wait_until(lambda: "ran" in span.log(job), 10, "the start")
    with (folder / "logs" / "packed.0.0.0.out").open() as followed:
        # Nobody hears its end: the next daemon packs it.
        span.kill_daemon()
        (folder / "go").touch()
        span.until(job, "COMPLETED")
        span.wait_until(lambda: sorted(os.listdir(folder)) == ["go", "pack.zip"], 20, "the pack")
        assert followed.read() == span.log(job) == "ran\n"
    assert len(span.timeline(job)) > 2 and f"{job} " in span.run("sacct", "-n", "-o", "jobid").stdout
    span.run("requeue", str(job))
    span.until(job, "COMPLETED")
    span.wait_until(lambda: sorted(os.listdir(folder)) == ["go", "pack.zip"], 20, "the second pack")
    assert span.log(job) == "ran 1\n"
    assert span.run("logs", str(job), "--attempt", "0").stdout == "ran\n"


@pytest.mark.own_daemon
def test_fifty_equals_start_in_the_order_of_submission(span: Any) -> None:
    from overspan import Client

    span.config.write_text("clusters:\n  local: {kind: local, cpus: 1, memory: 4G}\n")
    order = span.folder / "order"
    first = span.wrap(f"while [ ! -e {order}.go ]; do sleep 0.05; done")
    with Client(environment=span.environment) as client:
        jobs = [
            client.submit({"name": "n", "run": f"echo {number} >> {order}", "resources": {"cpus": 1}})
            for number in range(50)
        ]
        (span.folder / "order.go").touch()
        for job in jobs:
            assert job.wait(timeout=600).state == "COMPLETED"
    assert span.run("wait", str(first)).returncode == 0
    assert order.read_text().split() == list(map(str, range(50)))


def test_term_arrives_within_a_second_of_the_cancel(span: Any) -> None:
    """The quickest of some counts: a busy machine delays one or the other."""
    command = "trap 'echo at $(date +%s.%N); exit 0' TERM; echo up; while :; do sleep 0.02; done"
    jobs = [span.wrap(command, "-o", f"out-{number}") for number in range(5)]
    delays = []
    for job in jobs:
        span.wait_until(lambda job=job: "up" in span.log(job), 10, "the start")
        span.run("scancel", str(job))
        span.until(job, "CANCELLED")
        rows = span.timeline(job)
        asked = next(datetime.fromisoformat(row["at"]) for row in rows if row["text"].startswith("cancel"))
        delays.append(float(span.log(job).partition("at ")[2].split()[0]) - asked.timestamp())
    assert 0 <= min(delays) < 1


def test_a_job_can_submit_another_after_the_daemon_came_back(span: Any) -> None:
    outer = span.wrap(
        "while [ ! -e go ]; do sleep 0.05; done; span sbatch --parsable --wrap 'echo inner'", "-o", "outer"
    )
    span.until(outer, "RUNNING")
    span.kill_daemon()
    (span.folder / "go").touch()
    assert span.run("wait", str(outer)).returncode == 0
    inner = int(span.log(outer))
    assert span.run("wait", str(inner)).returncode == 0
    assert span.log(inner) == "inner\n"


def pipeline(*tasks: dict[str, Any], **header: Any) -> str:
    """A job file of several documents; JSON documents are YAML."""
    documents = [{"name": "p", **header}, *({"resources": {"cpus": 0.1}, **task} for task in tasks)]
    return "\n---\n".join(map(json.dumps, documents))


def test_the_tasks_of_a_pipeline_have_their_names_in_every_listing(span: Any, tmp_path: Path) -> None:
    gate = f"until [ -e {tmp_path}/go ]; do sleep 0.1; done"
    job = span.submit(pipeline({"name": "prep", "run": gate}, {"name": "train", "run": "true"}))
    span.until(job, "RUNNING", task="prep")
    lines = span.run("squeue", "-h", "-o", "%i %j %T %r").stdout.splitlines()
    assert sorted(lines) == [f"{job}+0 prep RUNNING None", f"{job}+1 train PENDING Dependency"]
    (tmp_path / "go").touch()
    span.run("wait", str(job))
    told = span.run("sacct", "-X", "-n", "-P", "-j", str(job), "-o", "JobID,JobName").stdout.split()
    assert told == [f"{job}+0|prep", f"{job}+1|train"]


@pytest.mark.parametrize(("code", "second"), [(0, "COMPLETED"), (3, "CANCELLED")])
def test_a_pipeline_goes_on_after_success_only(span: Any, code: int, second: str) -> None:
    job = span.submit(
        pipeline(
            {"name": "fit", "run": f"sleep 0.3; exit {code}"},
            {"name": "judge", "run": "echo judged"},
            execution="serial",
        )
    )
    assert span.run("wait", str(job), check=False).returncode == code
    fit, judge = span.job(job)["tasks"]
    assert judge["state"] == second
    assert span.log(job, "judge") == ("judged\n" if code == 0 else "")
    if code == 0:
        assert judge["started_at"] >= fit["ended_at"]


def test_the_middle_of_a_diamond_runs_in_parallel(span: Any) -> None:
    meet = "touch $OVERSPAN_RUN_DIR/$OVERSPAN_TASK; while [ ! -e $OVERSPAN_RUN_DIR/{} ]; do sleep 0.05; done"
    job = span.submit(
        pipeline(
            {"name": "top", "run": "sleep 0.2"},
            {"name": "left", "run": meet.format("right"), "needs": ["ok:top"]},
            {"name": "right", "run": meet.format("left"), "needs": ["ok:top"]},
            {"name": "bottom", "run": "echo end", "needs": ["ok:left", "afterok:right"]},
            execution="parallel",
        )
    )
    assert span.run("wait", str(job)).returncode == 0
    times = {task["name"]: task for task in span.job(job)["tasks"]}
    assert min(times["left"]["started_at"], times["right"]["started_at"]) >= times["top"]["ended_at"]
    assert times["bottom"]["started_at"] >= max(times["left"]["ended_at"], times["right"]["ended_at"])


def test_a_needed_task_is_waited_for_until_it_is_ready(span: Any) -> None:
    server = "sleep 0.5; touch $OVERSPAN_RUN_DIR/open; sleep 600"
    ready = {"command": "test -e $OVERSPAN_RUN_DIR/open", "period": 0.1}
    job = span.submit(
        pipeline(
            {"name": "client", "run": "test -e $OVERSPAN_RUN_DIR/open", "needs": ["server"]},
            {"name": "server", "run": server, "ready": ready},
            execution="parallel",
            primary_tasks=["client"],
        )
    )
    assert span.run("wait", str(job)).returncode == 0


def test_a_skypilot_task_runs_and_its_mistakes_are_named(span: Any) -> None:
    (span.folder / "work").mkdir()
    text = (
        "name: answers\nresources: {cpus: 0.1+, memory: 0.1+}\nnum_nodes: 2\nworkdir: work\n"
        "envs: {KEY: , MODEL: tiny}\nsecrets: {TOKEN: }\nsetup: echo set > set-$SKYPILOT_NODE_RANK\n"
        "run: echo $(basename $PWD) $KEY $MODEL $TOKEN $SKYPILOT_NODE_RANK $(cat set-$SKYPILOT_NODE_RANK)\n"
    )
    job = span.submit(text, "--env", "KEY=k", "--secret", "TOKEN=hidden")
    assert span.run("wait", str(job)).returncode == 0
    assert span.log(job, "", "--node", "1") == "work k tiny hidden 1 set\n"
    assert "hidden" not in json.dumps(span.job(job))
    file = span.folder / "wrong.yaml"
    file.write_text(text.replace("num_nodes", "num_node"))
    done = span.run("submit", str(file), check=False)
    assert done.returncode == 2
    assert "wrong.yaml:3:1: unknown key 'num_node'; did you mean 'num_nodes'?" in done.stderr
    assert "KEY has no value" in done.stderr


def test_check_says_what_works_on_this_machine(span: Any) -> None:
    done = span.run("check", "local", "--json", check=False)
    findings = json.loads(done.stdout)["findings"]
    said = {finding["what"] for finding in findings}
    assert {"state folder", "names", "user namespaces", "CPUs and memory"} <= said
    assert all(finding["works"] or finding["remedy"] for finding in findings)
