"""How long a pod lives at most, for a daemon that never comes back (`activeDeadlineSeconds`). Pure."""

from __future__ import annotations

from overspan.adapters.kubernetes.observation.launch_summaries import MIN_GRACE
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Start, TaskSpec

MARGIN = 300
"""Seconds for a daemon that is restarted just then: a limit is first of all its own affair."""
MAX_SECONDS = 2**31 - 1


ROOM = 2
"""How many times its wall time a task may get in the end: the daemon ends it in time, the pod's end is behind that."""


def longest_time(job: Job, task: TaskSpec, settings: Settings) -> int:
    """The longest wall time in seconds that a task can have in the pods of this launch.

    A task without a wall time has the cluster's `default_time`.
    """
    time = job.time_of(task.name)
    return max(settings.default_time, _longest(job)) if time is None else ROOM * time


def limit_pod(job: Job, task: TaskSpec, settings: Settings) -> int:
    """Seconds from the pod's start on its node: its wall time, what it may wait for, and the delays of its end.

    The wall time has room to grow, since the field has none while the pod runs (API, PodSpec). A task that needs others
    may wait for `default_time`.
    """
    if job.time_of(task.name) is None:
        return _bound(longest_time(job, task, settings) + _delays(job, task))
    waits = settings.default_time if task.needs else 0
    if job.spec.start is not Start.INDEPENDENT:
        # The others of the group may be longer in finding their nodes.
        waits += settings.gang_timeout
    return _bound(longest_time(job, task, settings) + waits + _delays(job, task))


def grace_of(task: TaskSpec) -> int:
    """Seconds between TERM and KILL; Kubernetes takes 0 for an end without a trace."""
    return max(MIN_GRACE, task.grace_period)


def flush_of(task: TaskSpec) -> int:
    """Seconds for which the data of an ended program may be sent; 0 for a task that writes to no store."""
    return task.flush.timeout if task.flushes else 0


def _delays(job: Job, task: TaskSpec) -> int:
    delay = 0 if task.primary else task.termination_delay
    return delay + grace_of(task) + flush_of(task) + job.spec.hold_on_failure + MARGIN


def _longest(job: Job) -> int:
    return max((task.time or 0 for task in job.spec.tasks), default=0)


def _bound(seconds: int) -> int:
    return min(seconds, MAX_SECONDS)
