"""The answer to --test-only."""

from __future__ import annotations

from overspan.adapters.contract import Node
from overspan.bridge.controller.submission.start_estimates import describe_trial
from overspan.bridge.model.durations import format_timestamp
from overspan.bridge.model.job import new_job
from overspan.bridge.model.resources import Resources
from overspan.bridge.model.spec import JobSpec, TaskSpec


def node(name: str, partition: str, default: bool = True) -> Node:
    return Node(name, partition, "idle", cpus=4, cpus_used=0, memory=100, memory_used=0, default=default)


NODES = (node("g1", "gpu", False), node("n1", "main"), node("n2", "main"), node("n3", "main"))


def test_slurms_sentence() -> None:
    job = new_job(0, JobSpec("j", (TaskSpec("batch", num_nodes=2, resources=Resources(cpus=3)),)), 5.0)
    when = format_timestamp(5.0)
    assert describe_trial(job, 7, NODES, 5.0) == (
        f"Job 7 to start at {when} using 6 processors on nodes n[1-2] in partition main"
    )


def test_a_time_to_wait_for_and_a_partition() -> None:
    spec = JobSpec("j", (TaskSpec("batch"),), begin=90.0, partition="gpu")
    told = describe_trial(new_job(0, spec, 5.0), 8, NODES, 5.0)
    assert told == f"Job 8 to start at {format_timestamp(90.0)} using 1 processors on nodes g1 in partition gpu"
