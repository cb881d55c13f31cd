"""Native dependencies: when Slurm itself can wait for predecessors, and their --dependency value (sbatch(1)). Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from overspan.adapters.contract import Awaited, Unmet
from overspan.adapters.slurm.groups.parts import is_set, may_be_set
from overspan.adapters.slurm.handles import Handle, parse_any
from overspan.adapters.slurm.rendering.forms import is_group
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Dependency, DependencyKind, JobNeed

_MINUTE = 60
_REMEMBERED_SECONDS = 200
"""Seconds for which Slurm has to remember an ended job: sbatch's answer may take that long."""
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
    """How a site treats ended jobs. `remembers`: Slurm knows them long enough for a dependency on one to be checked.

    `requeues`: Slurm requeues every lost job under its own id. `hetjobs`: a group is one native job, unless it asks to
    be a set.
    """

    remembers: bool
    requeues: bool
    hetjobs: bool


UNKNOWN = SiteRules(True, True, False)
"""Assumptions about a site that was not asked yet. The submission asks, so a wrong one is noticed in time."""


def read_rules(config: Mapping[str, str], hetjobs: bool) -> SiteRules:
    """The rules of a site by `scontrol show config` (slurm.conf(5)); MinJobAge 0 keeps ended jobs for ever."""
    age = re.match(r"\d+", config.get("MinJobAge", ""))
    # A partition's setting may make preemption cancel jobs instead of requeueing them.
    preempts = config.get("PreemptType", "") not in ("preempt/none", "(null)")
    remembers = age is not None and (int(age[0]) == 0 or int(age[0]) >= _REMEMBERED_SECONDS)
    return SiteRules(remembers, config.get("JobRequeue", "").strip() == "1" and not preempts, hetjobs)


def find_problem(job: Job, needs: Sequence[Unmet], rules: SiteRules) -> str:
    """Why Slurm cannot wait for all of these as Overspan would; empty if it can.

    Slurm treats an unknown id as satisfied for `afterok`, and a retried job gets another id: both would start the
    dependent job too early. If Slurm can wait, the job gains age in its queue meanwhile.
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
    """Why Slurm cannot wait for all of these, for any dependent job; empty if it can."""
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
    """Whether the native job is not the one meant: a group's allocation, or an array in place of an element."""
    handle = parse_any(awaited.handle)
    return not isinstance(handle, Handle) or (handle.index is not None) is not (need.element is not None)


def _is_named(job: Job, others: Sequence[Awaited]) -> bool:
    """Whether all have the same name in Slurm as in Overspan, where it can be changed after submission."""
    jobs = [job, *(awaited.job for awaited in others)]
    return all("name" not in one.labels and one.spec.name == job.spec.name for one in jobs)


def is_retryable(job: Job, rules: SiteRules) -> bool:
    """Whether a job may get another native id: a group, one with several clusters, or one that is retried when lost.

    Where the site requeues, a lost single job keeps its id.
    """
    if is_group(job) or job.spec.choice:
        return True
    budget = any(task.retry.max_recoveries and task.retry.max_restarts for task in job.spec.tasks)
    return budget and job.spec.requeue is not False and not rules.requeues


def name_needs(needs: Sequence[Unmet]) -> dict[JobNeed, str]:
    """The native ids of predecessors, joined by colons, by need; empty for a singleton, which has none."""
    return {
        unmet.need: ""
        if unmet.need.kind is DependencyKind.SINGLETON
        else ":".join(job.name for awaited in unmet.jobs if isinstance(job := parse_any(awaited.handle), Handle))
        for unmet in needs
    }


def render_dependency(dependency: Dependency, native: Mapping[JobNeed, str]) -> str:
    """The --dependency value for the needs with a native id, in order; empty for none. Delays round up to minutes."""
    parts = []
    for need in dependency.needs:
        if need.kind is DependencyKind.SINGLETON and need in native:
            parts.append(need.kind.value)
        elif native.get(need):
            delay = f"+{-(-need.delay // _MINUTE)}" if need.delay else ""
            parts.append(f"{need.kind.value}:{native[need]}{delay}")
    return ("?" if dependency.any else ",").join(parts)


def join_dependencies(first: str, second: str) -> str | None:
    """Both values as one; None if one asks for all and the other for any."""
    if not first or not second:
        return first or second
    if "?" in first + second:
        return None
    return f"{first},{second}"
