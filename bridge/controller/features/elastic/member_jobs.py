"""Makes the job of a further member of an elastic task out of its group."""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.model.elastic import MemberOf, Peer
from overspan.bridge.model.job import Job
from overspan.bridge.model.parts import place_task
from overspan.bridge.model.spec import JobSpec, OnFailure, Start, TaskSpec


def make_member(group: Job, cluster: str, name: str, index: int, peers: tuple[Peer, ...]) -> JobSpec:
    """The job of one member: the task on one node, with the group's settings and without its rules about tasks.

    It is on the task's own cluster, where the group is on `cluster` or on several that this name joins.
    """
    spec = group.spec
    task = _make_task(spec.task(name), group.task(name).time)
    member = MemberOf(group.id, spec.name, group.launch, name, index, peers)
    return JobSpec(
        name=f"{name}-{index}",
        tasks=(task,),
        clusters=(place_task(group, name, cluster),),
        start=Start.TOGETHER,
        inter_connection=spec.inter_connection,
        priority=group.priority,
        nice=group.nice,
        deadline=spec.deadline,
        parent=group.id,
        member=member,
        partition=name_partition(group),
        account=spec.account,
        qos=spec.qos,
        comment=spec.comment,
        native=spec.native,
        environment=spec.environment,
        origin=replace(spec.origin, text=""),
        mount_places={},
    )


def name_partition(group: Job) -> str:
    """The partition of further members; empty for the default one of their cluster.

    Where a group across runs is a list with the partitions of all its clusters, which is no partition of any.
    """
    return group.spec.partition if group.spec.across else group.partition or group.spec.partition


def _make_task(task: TaskSpec, time: int | None) -> TaskSpec:
    """The task as a job's only one. It decides about the job's end, which means nothing for the group."""
    retry = task.retry
    if task.on_failure is OnFailure.RESTART:
        retry = replace(retry, max_restarts_on_errors=max(retry.max_restarts_on_errors, retry.max_restarts))
    return replace(
        task,
        cluster="",
        num_nodes=1,
        primary=True,
        needs=(),
        elastic=None,
        spread=False,
        on_failure=OnFailure.IGNORE,
        restart=None,
        retry=retry,
        time=task.time if time is None else time or None,
    )
