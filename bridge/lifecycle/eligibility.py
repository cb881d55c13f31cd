"""Whether a waiting job may be sent to its cluster."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.lifecycle.dependencies import stand
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.states import State


class Eligibility(NamedTuple):
    """Whether the job may go now; if not, Slurm's reason, and the time at which it may (None: an order is needed)."""

    now: bool
    reason: str = "None"
    at: Optional[float] = None


def merely_waits(job: Job) -> bool:
    """Whether the job only waits: nothing is granted and no end is decided, so nothing would have to be ended."""
    return job.state is State.PENDING and job.granted_at is None and job.ending is None


def judge(job: Job, now: float, waited_for: bool = False) -> Eligibility:
    """Whether the job may be submitted to its cluster at `now`.

    `waited_for`: the cluster itself waits for the dependencies that are still unmet.
    """
    if not merely_waits(job):
        return Eligibility(False)
    if job.held:
        return Eligibility(False, job.reason if job.reason.startswith("JobHeld") else "JobHeldUser")
    dependency = stand(job, now)
    if dependency.never or not (dependency.met or waited_for):
        return Eligibility(False, "DependencyNeverSatisfied" if dependency.never else "Dependency", dependency.at)
    if job.begin is not None and job.begin > now:
        return Eligibility(False, "BeginTime" if dependency.met else "Dependency", job.begin)
    return Eligibility(True, "None" if dependency.met else "Dependency")
