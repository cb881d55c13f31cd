"""Slurm's listing verbs with a real daemon: an array in the queue and in the accounts, orders by element."""

from __future__ import annotations

import json
from typing import Any


def test_an_array_through_its_life(span: Any) -> None:
    job = span.run(
        "sbatch", "--parsable", "-a", "1-5%2", "-J", "sweep", "-t", "10", "--wrap", "sleep 3600"
    ).stdout.strip()

    def listed(*words: str) -> list[str]:
        lines: list[str] = span.run(*words).stdout.splitlines()
        return lines

    running = lambda: len(listed("squeue", "-h", "-t", "R", "-o", "%i")) == 2  # noqa: E731
    span.wait_until(running, 20, "two elements to run")
    assert listed("squeue", "-h", "-S", "i", "-o", "%i %t %K") == [
        f"{job}_1 R 1",
        f"{job}_2 R 2",
        f"{job}_[3-5%2] PD 3-5%2",
    ]
    fourth = [f"{job}_4 PENDING JobArrayTaskLimit"]
    span.wait_until(lambda: listed("squeue", "-h", "-j", f"{job}_4", "-o", "%i %T %r") == fourth, 20, "the reason")
    assert len(listed("squeue", "-hr", "-o", "%i")) == 5
    assert listed("sacct", "-nXP", "-j", job, "-o", "JobID,State")[-1] == f"{job}_[3-5%2]|PENDING"
    record = span.run("scontrol", "show", "job", f"{job}_1").stdout
    assert f"ArrayJobId={job} ArrayTaskId=1 ArrayTaskThrottle=2 JobName=sweep" in record
    span.run("scancel", f"{job}_[4-5]", f"{job}_1")
    span.wait_until(lambda: f"{job}_3" in listed("squeue", "-h", "-t", "R", "-o", "%i"), 20, "the third to run")
    states = [line.split("|") for line in listed("sacct", "-nXP", "-j", job, "-o", "JobID,State")]
    assert [state.split()[0] for _, state in states] == [
        "CANCELLED",
        "RUNNING",
        "RUNNING",
        "CANCELLED",
        "CANCELLED",
    ]
    assert [name for name, _ in states] == [f"{job}_{index}" for index in range(1, 6)]
    document = json.loads(span.run("squeue", "--json", "-j", job).stdout)
    assert {element["array_job_id"]["number"] for element in document["jobs"]} == {int(job)}
