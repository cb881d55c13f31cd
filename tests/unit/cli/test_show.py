"""`span show`: what people read of a job."""

from __future__ import annotations

from typing import Any

from overspan.bridge.cli.jobs.show import job_text

IMAGE = "JobLaunchFailure: its image cannot be pulled (ErrImagePull): " + "no such image " * 20
LACKS = "Resources: 0 of 2 have a place: 0/2 nodes are available: 2 Insufficient cpu."


def show(*tasks: dict[str, Any], reason: str) -> list[str]:
    return job_text({"id": 7, "name": "j", "state": "PENDING", "reason": reason, "tasks": [*tasks]}).splitlines()


def test_the_cluster_s_words_are_shown_whole_and_once() -> None:
    lines = show({"name": "main", "state": "PENDING", "reason": LACKS}, reason=LACKS)
    assert [line for line in lines if "Insufficient" in line] == [f"State:       PENDING ({LACKS})"]
    assert lines[-1].split()[:4] == ["7", "main", "PENDING", "Resources"]


def test_the_words_of_one_task_stand_above_the_table() -> None:
    tasks = [{"name": "a", "state": "PENDING", "reason": LACKS}, {"name": "b", "state": "PENDING", "reason": IMAGE}]
    lines = show(*tasks, reason=LACKS)
    assert [line for line in lines if "no such image" in line] == [f"Waits:       b: {IMAGE}"]
    assert max(len(line) for line in lines[-3:]) < 120


def test_how_storage_is_seen_is_told_with_where_and_why() -> None:
    mount = {"target": "./data", "url": "s3://lab/run", "mode": "MOUNT"}
    storage = [
        {**mount, "state": "mounted", "why": "", "nodes": ["n1", "n2"]},
        {**mount, "state": "copied", "why": "there is no /dev/fuse on this node", "nodes": ["n3"]},
        {**mount, "state": "", "why": "", "nodes": []},
    ]
    lines = show({"name": "main", "state": "RUNNING", "storage": storage}, reason="None")
    assert [line for line in lines if line.startswith("Storage:")] == [
        "Storage:     main: ./data is s3://lab/run (MOUNT, mounted on n1, n2)",
        "Storage:     main: ./data is s3://lab/run (MOUNT, copied on n3: there is no /dev/fuse on this node)",
        "Storage:     main: ./data is s3://lab/run (MOUNT)",
    ]
