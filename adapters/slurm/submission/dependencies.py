"""When Slurm may wait for a job's predecessors itself, and how that is written (sbatch(1), --dependency). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.contract import Awaited, Unmet
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.adapters.slurm.rendering.forms import is_group
from overspan.adapters.slurm.sets.members import is_set, may_be_set
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed

_MINUTE = 60
_PATIENCE = 200
"""Seconds for which Slurm has to know an ended job: as long as an answer of sbatch may take."""
_KINDS = frozenset(
    {
        DependencyKind.AFTER,
        DependencyKind.AFTERANY,
        DependencyKind.AFTEROK,
        DependencyKind.AFTERNOTOK,
        DependencyKind.SINGLETON,
    }
)


class SiteRules(NamedTuple):
    """What a site does with jobs that have ended. `remembers`: they stay known, so that a dependency on one holds.

    `requeues`: a lost job is queued again under its own id, whatever took it. `hetjobs`: a group is one job there,
    unless it asks to be a set.
    """

    remembers: bool
    requeues: bool
    hetjobs: bool


UNKNOWN = SiteRules(True, True, False)
"""What is taken for granted of a site that was not asked yet: only what a submission notices in time."""


def read_rules(config: Mapping[str, str], hetjobs: bool) -> SiteRules:
    """The rules of a site by `scontrol show config` (slurm.conf(5)); MinJobAge 0 keeps ended jobs for ever."""
    age = re.match(r"\d+", config.get("MinJobAge", ""))
    # What is preempted may be ended for good instead, by a setting of its partition.
    preempts = config.get("PreemptType", "") not in ("preempt/none", "(null)")
    remembers = age is not None and (int(age[0]) == 0 or int(age[0]) >= _PATIENCE)
    return SiteRules(remembers, config.get("JobRequeue", "").strip() == "1" and not preempts, hetjobs)


def find_problem(job: Job, needs: Sequence[Unmet], rules: SiteRules) -> str:
    """Why Slurm cannot have a job wait for all of these as Overspan would; empty where it can.

    A vanished id counts as satisfied for `afterok` in Slurm, and a retried job has another id: both would start the
    dependant too early. Slurm's own waiting keeps the job's age in the queue.
    """
    if job.element is not None:
        return "it is an element of an array"
    if needs and (is_set(job) or (may_be_set(job) and not rules.hetjobs)):
        return "it may be several jobs there"
    for unmet in needs:
        if unmet.need.kind is DependencyKind.SINGLETON and not _is_named(job, unmet.jobs):
            return "Slurm knows it, or an earlier one, by another name"
    return find_trouble(needs, rules)


def find_trouble(needs: Sequence[Unmet], rules: SiteRules) -> str:
    """Why Slurm cannot wait for all of these, for any job; empty where it can."""
    if needs and not rules.remembers:
        return "Slurm forgets ended jobs soon here"
    return next((trouble for unmet in needs if (trouble := _judge_need(unmet, rules))), "")


def _judge_need(unmet: Unmet, rules: SiteRules) -> str:
    need = unmet.need
    name = "an earlier job of this name" if need.kind is DependencyKind.SINGLETON else f"job {need.job}"
    if need.kind not in _KINDS or need.delay % _MINUTE or need.task is not None:
        return f"Slurm has no such dependency on {name}"
    if not unmet.jobs:
        return f"{name} is not live there"
    if any(is_retryable(awaited.job, rules) for awaited in unmet.jobs):
        return f"{name} may be started again under another id"
    if any(_is_other(awaited, need) for awaited in unmet.jobs):
        return f"{name} is not one job there"
    return ""


def _is_other(awaited: Awaited, need: JobNeed) -> bool:
    """Whether the native job is not what is meant: a group's allocation, a part of an array, the whole of one."""
    handle = parse_any(awaited.handle)
    return not isinstance(handle, Handle) or (handle.index is not None) is not (need.element is not None)


def _is_named(job: Job, others: Sequence[Awaited]) -> bool:
    """Whether all have the name in Slurm that they have here, where a name may be changed."""
    jobs = [job, *(awaited.job for awaited in others)]
    return all("name" not in one.labels and one.spec.name == job.spec.name for one in jobs)


def is_retryable(job: Job, rules: SiteRules) -> bool:
    """Whether a job may get another native id: a group, one with a choice of clusters, a lost one that has a budget.

    A single job is requeued by Slurm itself under its own id where the site does that.
    """
    if is_group(job) or job.spec.choice:
        return True
    budget = any(task.retry.max_recoveries and task.retry.max_restarts for task in job.spec.tasks)
    return budget and job.spec.requeue is not False and not rules.requeues


def name_needs(needs: Sequence[Unmet]) -> dict[JobNeed, str]:
    """How Slurm calls what is waited for; a singleton has no id."""
    return {
        unmet.need: ""
        if unmet.need.kind is DependencyKind.SINGLETON
        else ":".join(parse_any(awaited.handle).name for awaited in unmet.jobs)
        for unmet in needs
    }


def render_dependency(dependency: Dependency, native: Mapping[JobNeed, str]) -> str:
    """The --dependency value for the needs that have a native id, in their order; empty for none.

    `after` counts whole minutes, rounded up.
    """
    parts = []
    for need in dependency.needs:
        if need.kind is DependencyKind.SINGLETON and need in native:
            parts.append(need.kind.value)
        elif native.get(need):
            delay = f"+{-(-need.delay // _MINUTE)}" if need.delay else ""
            parts.append(f"{need.kind.value}:{native[need]}{delay}")
    return ("?" if dependency.any else ",").join(parts)


def join_dependencies(first: str, second: str) -> str | None:
    """Both values as one; None where they cannot be joined: one asks for all, the other for any."""
    if not first or not second:
        return first or second
    if "?" in first + second:
        return None
    return f"{first},{second}"
