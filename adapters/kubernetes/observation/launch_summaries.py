"""Launch summary: the tasks, nodes and first attempts of a launch, as much as following its pods takes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from overspan.adapters.kubernetes.launches.gang import count_pods
from overspan.adapters.kubernetes.manifests.names import has_names, name_domain
from overspan.adapters.store_files import list_stores
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import JobSpec, Start, TaskSpec
from overspan.bridge.model.storage import MountMode, parse_object_url

MIN_GRACE = 1
"""Seconds; a grace of 0 would take the pod's record away before its end is known (force deletion)."""


@dataclass(frozen=True)
class TaskSummary:
    """One task of a launch. `attempt` is the number of its first attempt in this launch."""

    name: str
    nodes: int
    attempt: int
    ready: bool = False
    grace: int = 30
    notice_signal: str = ""
    has_hook: bool = False
    """Whether it has a command for the loss of its pod (hooks.py)."""
    prints_end_mark: bool = False
    """Whether its programs also print an end mark into their logs."""
    waits: bool = False
    """Whether its pods wait at a start gate."""
    flush: int = 0
    """Seconds for which the data of its ended programs may be sent; 0 for a task that writes to no store."""


class PeerBucket(NamedTuple):
    """A bucket, by the store that reaches it."""

    store: str
    bucket: str


@dataclass(frozen=True)
class LaunchSummary:
    """One launch: `tasks` are those that may run in it."""

    token: str
    job: int
    launch: int
    tasks: tuple[TaskSummary, ...]
    together: bool = True
    """Whether all pods have to be there before any may start."""
    start_timeout: int | None = None
    """Seconds that it may hold nodes without having started; None: as the cluster says."""
    domain: str = ""
    """The name of its Service; '' for a launch without one."""
    peer_buckets: tuple[PeerBucket, ...] = ()
    """Where the movers of its pods agree about markers."""
    stores: tuple[str, ...] = ()
    """The stores whose credentials its Secret has."""

    @property
    def pods(self) -> int:
        """How many pods its first attempts have."""
        return sum(task.nodes for task in self.tasks)

    def task(self, name: str) -> TaskSummary | None:
        """The task of that name; None when the launch has none."""
        return next((task for task in self.tasks if task.name == name), None)


def ends_others(spec: JobSpec, task: TaskSpec) -> bool:
    """Whether other tasks are ended when this one is done: it is primary, and some are auxiliary."""
    return task.primary and any(not other.primary for other in spec.tasks)


def has_start_gate(job: Job, task: TaskSpec) -> bool:
    """Whether a task's pods wait before its program starts: for the others of the group, or for other tasks.

    So do those of a job that may still go to another cluster, or that has a part on one.
    """
    return count_pods(job) > 1 or bool(task.needs) or job.spec.choice or job.spec.across


def summarize_launch(token: str, job: Job) -> LaunchSummary:
    """The summary of a job's present launch, without the tasks that are over."""
    tasks = tuple(
        TaskSummary(
            name=spec.name,
            nodes=spec.num_nodes,
            attempt=len(task.attempts),
            ready=spec.ready is not None,
            grace=max(MIN_GRACE, spec.grace_period),
            notice_signal=spec.notice_signal,
            has_hook=bool(spec.on_preemption.strip()),
            prints_end_mark=ends_others(job.spec, spec),
            waits=has_start_gate(job, spec),
            flush=spec.flush.timeout if spec.flushes else 0,
        )
        for spec, task in zip(job.spec.tasks, job.tasks, strict=True)
        if not task.over
    )
    together = job.spec.start is not Start.INDEPENDENT
    domain = name_domain(job) if has_names(job) else ""
    return LaunchSummary(
        token,
        job.id,
        job.launch,
        tasks,
        together,
        job.spec.start_timeout,
        domain,
        list_peer_buckets(job.spec),
        list_stores(job),
    )


def list_peer_buckets(spec: JobSpec) -> tuple[PeerBucket, ...]:
    """The buckets in which movers of several pods agree."""
    mounts = (mount for task in spec.tasks if task.num_nodes > 1 for mount in task.storage)
    written = (mount for mount in mounts if mount.mode is MountMode.MOUNT_CACHED)
    return tuple(dict.fromkeys(PeerBucket(mount.store, parse_object_url(mount.url).bucket) for mount in written))
