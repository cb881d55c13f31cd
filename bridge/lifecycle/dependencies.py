"""Dependencies between jobs: Slurm's --dependency."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import DependencyKind, JobNeed
from overspan.bridge.model.states import State


class Standing(NamedTuple):
    """Whether the dependency is met; if not, whether it can never be, or the time at which it is met by itself."""

    met: bool
    never: bool = False
    at: Optional[float] = None


class Predecessor(NamedTuple):
    """The facts of a predecessor (job, element or task) that dependants look at."""

    started_at: Optional[float]
    ended_at: Optional[float]
    """None while it is not over."""
    ok: bool = False


def predecessor_of(job: Job, task: Optional[int] = None) -> Predecessor:
    """The facts of a job as a predecessor, or of its task at that index."""
    if task is None or not 0 <= task < len(job.tasks):
        ended_at = (job.ended_at or job.submitted_at) if job.over else None
        return Predecessor(job.started_at, ended_at, job.state is State.COMPLETED)
    found = job.tasks[task]
    started_at = next((attempt.started_at for attempt in found.attempts if attempt.started_at is not None), None)
    ended_at = (found.ended_at or job.submitted_at) if found.over else None
    return Predecessor(started_at, ended_at, found.state is State.COMPLETED)


def resolve(need: JobNeed, known: Optional[Predecessor], now: float) -> Optional[tuple[Optional[float]]]:
    """Whether a need is settled: (time from which it is met,), (None,) where it never can be, None while it is open.

    A predecessor that is no longer known counts as met (measured on Slurm 22.05).
    """
    if known is None:
        return (now,)
    if need.kind is DependencyKind.AFTER:
        # The end of what never started counts as its start (sbatch(1)).
        since = known.started_at if known.started_at is not None else known.ended_at
        return None if since is None else (since + need.delay,)
    if known.ended_at is None:
        return None
    if need.kind in (DependencyKind.AFTEROK, DependencyKind.AFTERCORR):
        return (known.ended_at,) if known.ok else (None,)
    if need.kind is DependencyKind.AFTERNOTOK:
        return (None,) if known.ok else (known.ended_at,)
    return (known.ended_at,)


def list_unmet(job: Job, now: float) -> tuple[tuple[JobNeed, bool], ...]:
    """The needs that are not met, each with whether it is still unresolved.

    Where any one need is enough, those that can never be met are left out.
    """
    dependency = job.dependency
    known = {entry.place: entry.at for entry in job.resolved}
    met = {place for place, at in known.items() if at is not None and at <= now}
    lost = {place for place, at in known.items() if at is None}
    if dependency.any and met:
        return ()
    return tuple(
        (need, place not in known)
        for place, need in enumerate(dependency.needs)
        if place not in met and not (dependency.any and place in lost)
    )


def stand(job: Job, now: float) -> Standing:
    """The state of the job's dependency, from the needs that are resolved."""
    dependency = job.dependency
    if not dependency.needs:
        return Standing(True)
    times = [entry.at for entry in job.resolved if entry.at is not None]
    lost = len(job.resolved) - len(times)
    if dependency.any:
        at = min(times, default=None)
        never = lost == len(dependency.needs)
    else:
        at = max(times) if len(times) == len(dependency.needs) else None
        never = lost > 0
    if never:
        return Standing(False, never=True)
    if at is None or at > now:
        return Standing(False, at=at)
    return Standing(True)
