"""A lab for frames: jobs, a group and arrays on three clusters, in every kind of state."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tests.unit.tui.fake_source import NOW, job

from overspan.bridge.client.records import Stale
from overspan.bridge.listings.rows import JobRow

HOUR = 3600.0
STALE = (
    Stale("slurm-a", NOW - 125, "ssh timed out"),
    Stale("k8s", NOW - 30, "2 of 5 nodes do not tell what runs there", partial=True),
)


def make_group(number: int) -> Sequence[JobRow]:
    """A group whose reward waits for its trainer, and whose rollout has two more members than it began with."""
    more: dict[str, Any] = {"group": "rl-math", "user": "ana", "cluster": "slurm-a", "partition": "gpu"}
    return [
        job(number, "trainer", task_offset=0, raw_id=number, nodes=2, node_list="gpu[01-02]", **more),
        job(number, "rollout", task_offset=1, nodes=4, node_list="gpu[03-06]", members="5 of 4-8", **more),
        job(number, "reward", "PENDING", task_offset=2, raw_id=number + 2, reason="Dependency", **more),
        job(number + 30, "rollout-4", member_of=f"{number}+rollout", node_list="gpu07", **more),
        job(number + 31, "rollout-5", "PENDING", member_of=f"{number}+rollout", reason="Resources", **more),
    ]


def make_array(number: int) -> Sequence[JobRow]:
    """An array of a thousand elements: some run, one has failed, the rest waits."""
    more: dict[str, Any] = {"user": "bob", "cluster": "k8s", "partition": "batch", "array_id": number}
    running = [
        job(number + 1 + index, "sweep-lr", array_index=index, node_list=f"node-{index}", **more) for index in range(3)
    ]
    failed = job(number + 9, "sweep-lr", "FAILED", array_index=3, ended_at=NOW - 20, reason="NonZeroExitCode", **more)
    waiting = job(number, "sweep-lr", "PENDING", array_waiting="4-999%4", reason="JobArrayTaskLimit", **more)
    return [*running, failed, waiting]


def make_lab() -> list[JobRow]:
    """All jobs."""
    return [
        *make_group(4815),
        *make_array(4900),
        job(
            4820,
            "train-a-rather-large-model-with-a-long-name",
            started_at=NOW - 27 * HOUR,
            nodes=16,
            node_list="node[001-016]",
            partition="long",
            cluster="slurm-b",
            user="christina",
        ),
        job(
            4821,
            "eval",
            "PENDING",
            priority=120,
            reason="Resources: 4 GPUs are asked for, 1 is free",
            expected_start=NOW + 2 * HOUR,
            cluster="slurm-b",
        ),
        job(4822, "nightly", "PENDING", reason="BeginTime", begin=NOW + 30 * HOUR, cluster="local", user="bob"),
        job(4823, "日本語の名前", "SUSPENDED", paused_at=NOW - 5, cluster="local", node_list="laptop"),
        job(4824, "clean\x1b[2J[red]up", "CANCELLED", ended_at=NOW - 10, cluster="local", node_list="laptop"),
        job(4700, "old", "COMPLETED", ended_at=NOW - 600, cluster="local", node_list="laptop"),
    ]
