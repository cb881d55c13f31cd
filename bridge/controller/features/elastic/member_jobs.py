"""Makes the job of a further member of an elastic task out of its group."""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.model.elastic import MemberOf, Peer
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec, OnFailure, Start, TaskSpec


def make_member(group: Job, cluster: str, name: str, index: int, peers: tuple[Peer, ...]) -> JobSpec:
    """The job of one member: the task on one node, with the group's settings and without its rules about tasks."""
    spec = group.spec
    task = _make_task(spec.task(name), group.task(name).time)
    member = MemberOf(group.id, spec.name, group.launch, name, index, peers)
    return JobSpec(
        name=f"{name}-{index}",
        tasks=(task,),
        clusters=(cluster,),
        start=Start.TOGETHER,
        inter_connection=spec.inter_connection,
        priority=group.priority,
        nice=group.nice,
        deadline=spec.deadline,
        parent=group.id,
        member=member,
        partition=group.partition or spec.partition,
        account=spec.account,
        qos=spec.qos,
        comment=spec.comment,
        native=spec.native,
        environment=spec.environment,
        origin=replace(spec.origin, text=""),
        mount_places={},
    )


def _make_task(task: TaskSpec, time: int | None) -> TaskSpec:
    """The task as a job's only one. It decides about the job's end, which means nothing for the group."""
    retry = task.retry
    if task.on_failure is OnFailure.RESTART:
        retry = replace(retry, max_restarts_on_errors=max(retry.max_restarts_on_errors, retry.max_restarts))
    return replace(
        task,
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
