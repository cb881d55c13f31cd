"""Stages of a pipeline on the local cluster: each holds nothing before its turn. Row MJ10 of docs/acceptance.md."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.system.acceptance.waiting_tasks import list_rows, wait_for

pytestmark = pytest.mark.shared_daemon

Span = Any


def pipeline(*tasks: dict[str, Any], **header: Any) -> str:
    """A job file of several documents; JSON documents are YAML."""
    return "\n---\n".join(map(json.dumps, [{"name": "p", **header}, *tasks]))


def test_a_stage_holds_nothing_before_its_turn(span: Span, tmp_path: Path) -> None:
    """MJ10: while a small stage runs, the machine is free for others, also for what the next stage asks for."""
    go, big = tmp_path / "go", {"cpus": 64, "accelerators": 4}
    small = {"name": "fit", "resources": {"cpus": 0.1}, "run": f"echo fitted; {wait_for(go)}"}
    job = span.submit(pipeline(small, {"name": "judge", "resources": big, "run": "echo judged"}))
    span.until(job, "RUNNING", task="fit")
    assert list_rows(span, job) == [f"{job}+0 RUNNING None", f"{job}+1 PENDING Dependency"]
    assert span.run("squeue", "-h", "--groups", "-j", str(job), "-o", "%D %C").stdout.split() == ["1", "1"]
    # All but the tenth of a CPU is free.
    other = span.submit(json.dumps({"name": "other", "resources": {"cpus": 63, "accelerators": 4}, "run": "true"}))
    assert span.until(other, "COMPLETED")
    after = tmp_path / "after"
    holder = span.submit(json.dumps({"name": "h", "resources": {"cpus": 1, "accelerators": 1}, "run": wait_for(after)}))
    span.until(holder, "RUNNING")
    go.touch()
    # Its turn has come, and its resources are asked for now.
    span.wait_until(lambda: list_rows(span, job) == [f"{job}+1 PENDING Resources"], 20, "the second stage to queue")
    assert span.job(job)["state"] == "PENDING"
    assert span.log(job, "fit") == "fitted\n"
    after.touch()
    span.until(job, "COMPLETED")
    assert [span.log(job, name) for name in ("fit", "judge")] == ["fitted\n", "judged\n"]
    assert span.job(job)["restarts"] == 0


def test_a_stage_that_can_never_fit_is_refused_at_submission(span: Span) -> None:
    done = span.run(
        "submit",
        "-",
        stdin=pipeline({"name": "fit", "run": "true"}, {"name": "judge", "resources": {"cpus": 65}, "run": "true"}),
        check=False,
    )
    assert done.returncode == 1 and "Requested node configuration is not available" in done.stderr


def test_each_stage_finds_itself_alone_and_its_run_directory_stays(span: Span) -> None:
    """Names are between members that live at the same time; what a stage leaves in the run directory is there later."""
    look = "echo $OVERSPAN_TASK $OVERSPAN_MEMBERS ${SLURM_RESTART_COUNT:-none} $SLURM_JOB_ID"
    job = span.submit(
        pipeline(
            {"name": "fit", "run": f"echo found > $OVERSPAN_RUN_DIR/note; {look}"},
            {"name": "judge", "run": f"cat $OVERSPAN_RUN_DIR/note; {look}"},
        )
    )
    span.until(job, "COMPLETED")
    fit, judge = (span.log(job, name).split() for name in ("fit", "judge"))
    assert fit[0] == "fit" and judge[:2] == ["found", "judge"]
    assert "judge" not in " ".join(fit) and "fit" not in " ".join(judge)
    assert fit[-2:] == judge[-2:] == ["none", str(job)]


def test_a_pipeline_is_cancelled_between_two_stages(span: Span, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    holder = span.submit(json.dumps({"name": "h", "resources": {"cpus": 60}, "run": wait_for(gate)}))
    job = span.submit(
        pipeline({"name": "fit", "run": "true"}, {"name": "judge", "resources": {"cpus": 60}, "run": "true"})
    )
    span.until(holder, "RUNNING")
    span.wait_until(lambda: list_rows(span, job) == [f"{job}+1 PENDING Resources"], 20, "the second stage to queue")
    span.run("scancel", str(job))
    span.until(job, "CANCELLED")
    assert [task["state"] for task in span.job(job)["tasks"]] == ["COMPLETED", "CANCELLED"]
    gate.touch()
    span.until(holder, "COMPLETED")


def test_a_cancelled_later_stage_ends_the_pipeline(span: Span) -> None:
    """As a failed one does: what runs ends with it."""
    job = span.submit(pipeline({"name": "fit", "run": "sleep 600"}, {"name": "judge", "run": "true"}))
    span.until(job, "RUNNING", task="fit")
    span.run("scancel", f"{job}+1")
    span.until(job, "CANCELLED")
    assert [task["state"] for task in span.job(job)["tasks"]] == ["CANCELLED", "CANCELLED"]


def test_a_requeue_repeats_the_stage_that_runs_and_after_the_end_all(span: Span, tmp_path: Path) -> None:
    go = tmp_path / "go"
    note = f"echo $OVERSPAN_TASK:${{SLURM_RESTART_COUNT:-0}} >> {tmp_path}/order"
    job = span.submit(
        pipeline({"name": "fit", "run": note}, {"name": "judge", "run": f"{note}; {wait_for(go)}"}),
    )
    span.until(job, "RUNNING", task="judge")
    span.wait_until(lambda: "judge:0" in (tmp_path / "order").read_text(), 20, "the second stage")
    span.run("requeue", str(job))
    span.wait_until(lambda: "judge:1" in (tmp_path / "order").read_text(), 20, "the second stage again")
    go.touch()
    span.until(job, "COMPLETED")
    span.run("requeue", str(job))
    span.wait_until(lambda: len((tmp_path / "order").read_text().split()) == 5, 20, "all of it again")
    span.until(job, "COMPLETED")
    ran = (tmp_path / "order").read_text().split()
    assert [name.partition(":")[0] for name in ran] == ["fit", "judge", "judge", "fit", "judge"]


def test_a_new_limit_of_a_later_stage_holds_at_its_turn(span: Span, tmp_path: Path) -> None:
    go = tmp_path / "go"
    job = span.submit(
        pipeline({"name": "fit", "run": wait_for(go), "time": 60}, {"name": "judge", "run": "sleep 600", "time": 60})
    )
    span.until(job, "RUNNING", task="fit")
    span.run("scontrol", "update", f"jobid={job}+1", "TimeLimit=0:00:02")
    limits = [task["time_limit"] for task in span.job(job)["tasks"]]
    assert limits == [60 * 60, 2]
    go.touch()
    span.until(job, "TIMEOUT")
    assert [task["state"] for task in span.job(job)["tasks"]] == ["COMPLETED", "TIMEOUT"]


def test_the_next_stage_starts_although_the_daemon_died_between_the_two(span: Span, tmp_path: Path) -> None:
    """MJ19: the first stage ends while no daemon runs; the next daemon asks for the second."""
    go, gone = tmp_path / "go", tmp_path / "gone"
    job = span.submit(
        pipeline({"name": "fit", "run": f"{wait_for(go)}; touch {gone}"}, {"name": "judge", "run": "echo judged"})
    )
    span.until(job, "RUNNING", task="fit")
    span.kill_daemon()
    go.touch()
    # Every command of ours would start the daemon again.
    span.wait_until(gone.exists, 20, "the end of the first stage")
    span.until(job, "COMPLETED")
    assert span.log(job, "judge") == "judged\n"
    assert len(span.task(job, "judge")["attempts"]) == 1


def test_a_plan_shows_each_stage_with_its_turn(span: Span) -> None:
    text = pipeline({"name": "fit", "run": "true"}, {"name": "judge", "run": "true"})
    told = span.run("plan", "-", stdin=text).stdout
    assert "# stage 1 of 2: fit asks for its resources at once" in told
    assert "# stage 2 of 2: judge asks for its resources when fit has succeeded" in told
