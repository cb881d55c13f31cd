"""Room for members of elastic tasks, and how many of them are given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from overspan.adapters.contract import Node
from overspan.bridge.controller.features.elastic.member_jobs import make_member
from overspan.bridge.controller.features.elastic.room import count_returned, count_room, list_free, waits_for_room
from overspan.bridge.model.elastic import Elastic
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.resources import NodeNeed, Resources, parse_accelerators
from overspan.bridge.model.spec import JobSpec, TaskSpec

NODE = Node("n1", "main", "mixed", cpus=8, cpus_used=2, memory=16_000, memory_used=4_000, gpus=4, gpus_used=1)


def make_job(resources: Resources, nodes: int = 1) -> Job:
    """A job that waits."""
    job = new_job(3, JobSpec("j", (TaskSpec("t", num_nodes=nodes, resources=resources),)), 1.0)
    return replace(job, reason="Resources")


def test_what_is_free_is_that_of_nodes_that_take_work_in_the_partition() -> None:
    nodes = [
        NODE,
        replace(NODE, name="n2", state="drained"),
        replace(NODE, name="n3", partition="other", default=False),
        replace(NODE, name="n4", state="idle", cpus_used=0, memory=0),
    ]
    assert list_free(nodes, "main") == [NodeNeed(6000, 12_000, 3000), NodeNeed(8000, None, 3000)]
    assert list_free(nodes, "unknown") == list_free(nodes, "main")
    assert list_free(nodes, "other") == [NodeNeed(6000, 12_000, 3000)]


@pytest.mark.parametrize(
    ("need", "count"),
    [
        (NodeNeed(1000), 6),
        (NodeNeed(2000, 4_000), 3),
        (NodeNeed(1000, 7_000), 1),
        (NodeNeed(1000, None, 1000), 3),
        (NodeNeed(1000, None, 1000, "A100"), 3),
        (NodeNeed(7000), 0),
    ],
)
def test_members_are_counted_by_what_is_short(need: NodeNeed, count: int) -> None:
    assert count_room(list_free([NODE], "main"), [need]) == count
    assert count_room(list_free([NODE], "main"), [NodeNeed(99_000), need]) == count


def test_a_gpu_of_another_kind_is_no_room() -> None:
    free = list_free([replace(NODE, gpu_kind="H100")], "main")
    assert count_room(free, [NodeNeed(1000, None, 1000, "A100")]) == 0
    assert count_room(free, [NodeNeed(1000, None, 1000, "h100")]) == 3


def test_as_many_are_given_back_as_the_waiting_job_is_short_of() -> None:
    member = NodeNeed(2000, 1_000)
    free = [NodeNeed(1000, 500)]
    assert count_returned(free, make_job(Resources(cpus=2)), member, "c") == 1
    assert count_returned(free, make_job(Resources(cpus=3), nodes=2), member, "c") == 3
    assert count_returned(free, make_job(Resources(cpus=1, memory_mib=4_500)), member, "c") == 4
    gpus = make_job(Resources(cpus=1, gpus=parse_accelerators("A100:2")))
    assert count_returned(free, gpus, NodeNeed(500, None, 500), "c") == 4
    # Sums do not tell why it waits: one is tried.
    assert count_returned([NodeNeed(9000, 9_000)], make_job(Resources(cpus=1)), member, "c") == 1


def test_who_waits_for_room() -> None:
    job = make_job(Resources())
    assert waits_for_room(job, "c", "c") and waits_for_room(replace(job, reason="Priority"), "c", "c")
    assert waits_for_room(replace(job, reason="Resources: Nodes required for job are reserved"), "c", "c")
    for other in (
        replace(job, reason="Dependency"),
        replace(job, held=True),
        replace(job, granted_at=2.0),
        replace(job, reason="None"),
    ):
        assert not waits_for_room(other, "c", "c")


def test_a_group_across_waits_for_room_where_its_reason_says() -> None:
    job = replace(make_job(Resources()), reason="Resources: kube")
    assert waits_for_room(job, "leo+kube", "kube")
    assert not waits_for_room(job, "leo+kube", "leo")
    assert not waits_for_room(job, "leo+kube", "other")
    assert not waits_for_room(job, "leo", "kube")


def test_only_tasks_of_that_cluster_are_short_of_its_room() -> None:
    wide = TaskSpec("a", run="true", cluster="leo", resources=Resources(cpus=64))
    narrow = TaskSpec("b", run="true", cluster="kube", resources=Resources(cpus=3))
    job = new_job(1, JobSpec("g", (wide, narrow), group=True), 0.0)
    assert count_returned([NodeNeed(1000, 9_000)], job, NodeNeed(1000, 100), "kube") == 2


def test_a_further_member_of_a_group_across_is_on_its_tasks_own_cluster_and_in_its_partition() -> None:
    """JG41: not on the place that the group's clusters are together, nor in the list of their partitions."""
    trainer = TaskSpec("trainer", run="true", cluster="leo")
    rollout = TaskSpec("rollout", run="true", cluster="kube", primary=False, elastic=Elastic(1, 3, 1))
    group = replace(new_job(1, JobSpec("g", (trainer, rollout), group=True), 0.0), partition="debug,pods")
    spec = make_member(group, "leo+kube", "rollout", 1, ())
    assert (spec.clusters, spec.task("rollout").cluster, spec.partition) == (("kube",), "", "")
    alone = replace(group, spec=JobSpec("g", (replace(rollout, cluster=""),), group=True), partition="pods")
    spec = make_member(alone, "kube", "rollout", 1, ())
    assert (spec.clusters, spec.partition) == (("kube",), "pods")
