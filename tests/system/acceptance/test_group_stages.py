"""Stages of a group on the local cluster: what waits for the end of others holds nothing before. Row MJ10."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.system.acceptance.waiting_tasks import list_rows, wait_for

pytestmark = pytest.mark.shared_daemon

Span = Any
SMALL = {"cpus": 0.1}


def group(*tasks: dict[str, Any], **header: Any) -> str:
    """A job file of several documents; JSON documents are YAML."""
    return "\n---\n".join(map(json.dumps, [{"name": "gs", "execution": "parallel", **header}, *tasks]))


def test_tasks_that_wait_for_an_end_hold_nothing_before_their_turn(span: Span, tmp_path: Path) -> None:
    """MJ10: an auxiliary prepares; a trainer and its server follow, with more than was free meanwhile."""
    go, done = tmp_path / "go", tmp_path / "done"
    job = span.submit(
        group(
            {"name": "prepare", "resources": SMALL, "run": f"echo $OVERSPAN_MEMBERS; {wait_for(go)}"},
            {
                "name": "train",
                "resources": {"cpus": 40},
                "needs": ["ready:server"],
                "run": f"getent hosts server-0.gs >/dev/null && echo $OVERSPAN_MEMBERS; touch {done}",
            },
            {
                "name": "server",
                "resources": {"cpus": 20, "accelerators": 4},
                "needs": ["ok:prepare"],
                "ready": {"command": "test -e $OVERSPAN_RUN_DIR/up"},
                "run": "touch $OVERSPAN_RUN_DIR/up; sleep 600",
            },
            primary_tasks=["train"],
        )
    )
    span.until(job, "RUNNING", task="prepare")
    waits = [f"{job}+{place} PENDING Dependency" for place in (1, 2)]
    assert list_rows(span, job) == [f"{job}+0 RUNNING None", *waits]
    other = span.submit(json.dumps({"name": "o", "resources": {"cpus": 63, "accelerators": 4}, "run": "true"}))
    span.until(other, "COMPLETED")
    go.touch()
    span.until(job, "COMPLETED")
    assert done.exists()
    assert span.log(job, "prepare") == "prepare-0.gs\n"
    assert span.log(job, "train") == "train-0.gs,server-0.gs\n"
    assert [task["state"] for task in span.job(job)["tasks"]] == ["COMPLETED"] * 3
    assert span.job(job)["restarts"] == 0


def test_together_books_all_from_the_start(span: Span, tmp_path: Path) -> None:
    go = tmp_path / "go"
    tasks = (
        {"name": "a", "resources": SMALL, "run": wait_for(go)},
        {"name": "b", "resources": {"accelerators": 4}, "needs": ["ok:a"], "run": "true"},
    )
    job = span.submit(group(*tasks, start="together"))
    span.until(job, "RUNNING", task="a")
    other = span.submit(json.dumps({"name": "o", "resources": {"accelerators": 1}, "run": "true"}))
    span.wait_until(lambda: list_rows(span, other) == [f"{other} PENDING Resources"], 20, "the other to queue")
    go.touch()
    span.until(job, "COMPLETED")
    span.until(other, "COMPLETED")


def test_followers_of_a_failed_task_never_start_and_are_said_to_be_so(span: Span) -> None:
    job = span.submit(
        group(
            {"name": "fit", "resources": SMALL, "run": "exit 3"},
            {"name": "judge", "resources": SMALL, "needs": ["ok:fit"], "run": "true"},
            {"name": "show", "resources": SMALL, "needs": ["ended:judge"], "run": "true"},
        )
    )
    shown = span.until(job, "FAILED")
    assert shown["exit_code"] == 3
    assert [(task["state"], len(task["attempts"])) for task in shown["tasks"]] == [
        ("FAILED", 1),
        ("CANCELLED", 0),
        ("CANCELLED", 0),
    ]


def test_an_auxiliary_that_a_later_primary_cannot_do_without_ends_the_group_at_once(span: Span) -> None:
    job = span.submit(
        group(
            {"name": "prepare", "resources": SMALL, "run": "exit 2"},
            {"name": "fetch", "resources": SMALL, "run": "sleep 600"},
            {"name": "train", "resources": SMALL, "needs": ["ok:prepare", "ok:fetch"], "run": "true"},
            primary_tasks=["fetch", "train"],
        )
    )
    shown = span.until(job, "FAILED")
    assert shown["reason"] == "AuxiliaryFailed"
    assert [task["state"] for task in shown["tasks"]] == ["FAILED", "CANCELLED", "CANCELLED"]


def test_a_task_that_fails_is_tried_again_in_its_stage(span: Span, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    job = span.submit(
        group(
            {
                "name": "fit",
                "resources": SMALL,
                "max_restarts_on_errors": 1,
                "backoff": {"first": 0},
                "run": f"test -e {flag} || {{ touch {flag}; exit 1; }}",
            },
            {"name": "judge", "resources": SMALL, "needs": ["ok:fit"], "run": "true"},
        )
    )
    shown = span.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [2, 1]


def test_a_cancelled_later_auxiliary_is_left_out_and_a_primary_ends_the_group(span: Span, tmp_path: Path) -> None:
    go = tmp_path / "go"
    tasks = (
        {"name": "fit", "resources": SMALL, "run": wait_for(go)},
        {"name": "show", "resources": SMALL, "needs": ["ok:fit"], "run": "sleep 600"},
        {"name": "judge", "resources": SMALL, "needs": ["ok:fit"], "run": "true"},
    )
    job = span.submit(group(*tasks, primary_tasks=["fit", "judge"]))
    span.until(job, "RUNNING", task="fit")
    span.run("scancel", f"{job}+1")
    assert span.task(job, "show")["state"] == "CANCELLED" and span.task(job, "fit")["state"] == "RUNNING"
    go.touch()
    span.until(job, "COMPLETED")
    assert span.task(job, "show")["attempts"] == []
    go.unlink()
    again = span.submit(group(*tasks, primary_tasks=["fit", "judge"]))
    span.until(again, "RUNNING", task="fit")
    span.run("scancel", f"{again}+2")
    span.until(again, "CANCELLED")


def test_the_next_stage_of_a_group_starts_although_the_daemon_died_between_the_two(span: Span, tmp_path: Path) -> None:
    go, gone = tmp_path / "go", tmp_path / "gone"
    job = span.submit(
        group(
            {"name": "prepare", "resources": SMALL, "run": f"{wait_for(go)}; touch {gone}"},
            {"name": "a", "resources": SMALL, "needs": ["ok:prepare"], "run": "echo a"},
            {"name": "b", "resources": SMALL, "needs": ["ok:prepare"], "run": "echo b"},
            primary_tasks=["a", "b"],
        )
    )
    span.until(job, "RUNNING", task="prepare")
    span.kill_daemon()
    go.touch()
    # Every command of ours would start the daemon again.
    span.wait_until(gone.exists, 20, "the end of the first stage")
    shown = span.until(job, "COMPLETED")
    assert [len(task["attempts"]) for task in shown["tasks"]] == [1, 1, 1]
    assert [span.log(job, name) for name in "ab"] == ["a\n", "b\n"]


def test_a_plan_shows_what_is_booked_when(span: Span) -> None:
    text = group(
        {"name": "prepare", "run": "true"},
        {"name": "a", "run": "true", "needs": ["ok:prepare"]},
        {"name": "b", "run": "true", "needs": ["ok:prepare"]},
        {"name": "c", "run": "true", "needs": ["ok:a", "ended:b"]},
    )
    told = [line for line in span.run("plan", "-", stdin=text).stdout.splitlines() if line.startswith("# stage")]
    assert told == [
        "# stage 1 of 3: prepare asks for its resources at once",
        "# stage 2 of 3: a and b ask for their resources when prepare has succeeded",
        "# stage 3 of 3: c asks for its resources when a has succeeded, and b has ended",
    ]
