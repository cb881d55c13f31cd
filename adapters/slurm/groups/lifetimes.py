"""The longest possible lifetimes of a group's tasks, from wall times, delays and grace periods. In seconds."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from overspan.bridge.lifecycle.stages import list_deferred
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import NeedKind, TaskSpec
from overspan.bridge.runtime.slurm.set_supervisor import START_SECONDS

MARGIN = 60
"""Seconds for the start of steps and the end of the supervisor; Slurm's limits are whole minutes."""
_AFTER_END = (NeedKind.OK, NeedKind.NOT_OK, NeedKind.ENDED)


def wall_time(job: Job, task: TaskSpec) -> int | None:
    """The wall time in force; None for no limit."""
    changed = job.task(task.name).time
    return task.time if changed is None else changed or None


def find_patience(job: Job) -> int:
    """How many seconds the native job of a deferred task may wait in the queue while others hold their nodes.

    0 where no task is deferred.
    """
    if not list_deferred(job):
        return 0
    return START_SECONDS if job.spec.start_timeout is None else job.spec.start_timeout


def find_waits(job: Job) -> Mapping[str, int]:
    """By deferred task of a set: how many seconds its native job may wait."""
    return dict.fromkeys(list_deferred(job), find_patience(job))


def longest_primary(job: Job) -> TaskSpec:
    """The primary task with the longest lifetime; of equal ones the first in the file.

    In a stage that primary tasks follow any task may be the longest.
    """
    primaries = job.lasting or job.spec.tasks
    ends = {task.name: _own_end(job, task, ()) for task in primaries}
    unlimited = [task for task in primaries if ends[task.name] is None]
    return unlimited[0] if unlimited else max(primaries, key=lambda task: ends[task.name] or 0)


def latest_ends(job: Job, waits: Mapping[str, int] = MappingProxyType({})) -> dict[str, int | None]:
    """By task: the latest second after the group's start at which its last process has ended; None: no limit.

    What `waits` for nodes of its own (by task, in seconds) has its end counted from its own start, and what runs
    beside it lasts through its wait.
    An auxiliary task ends at latest after the primaries, its termination delay and its grace period. hold_on_failure is
    added to each, since the nodes are kept for that long.
    """
    own = {task.name: _own_end(job, task, (), waits) for task in job.spec.tasks}
    lasting = job.lasting
    primaries = [own[task.name] for task in lasting]
    done = None if not primaries or None in primaries else max(end or 0 for end in primaries)
    ends: dict[str, int | None] = {}
    for task in job.spec.tasks:
        end = own[task.name]
        if task not in lasting and done is not None:
            led = done + task.termination_delay + task.grace_period
            end = led if end is None else min(end, led)
        time = wall_time(job, task)
        if task.name in waits and time is not None:
            end = time + task.grace_period
        ends[task.name] = None if end is None else end + job.spec.hold_on_failure
    return ends


def _own_end(
    job: Job, task: TaskSpec, chain: tuple[str, ...], waits: Mapping[str, int] = MappingProxyType({})
) -> int | None:
    """The end by the task's own wall time, counted from the end of the tasks that it waits for."""
    time = wall_time(job, task)
    if time is None:
        return None
    start = 0
    for need in task.needs:
        if need.kind in _AFTER_END and need.task not in chain:
            before = _own_end(job, job.spec_of(need.task), (*chain, task.name), waits)
            if before is None:
                return None
            start = max(start, before)
    if task.name in waits:
        # While a primary task runs, the one that waits takes nobody's time (`_judge_patience`).
        for other in job.lasting:
            if other.name not in waits and other.name not in chain:
                before = _own_end(job, other, (*chain, task.name), waits)
                if before is None:
                    return None
                start = max(start, before)
    return start + waits.get(task.name, 0) + time + task.grace_period
