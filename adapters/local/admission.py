"""Whether a job could ever run on this machine, in Slurm's words. Pure."""

from __future__ import annotations

from overspan.adapters.local.booking import Ledger, list_variants
from overspan.adapters.local.capacity import Capacity
from overspan.adapters.local.settings import Settings
from overspan.bridge.model.job import Job

NEVER_FITS = "Requested node configuration is not available"
NO_PARTITION = "invalid partition specified: {}"
TOO_LONG = "Requested time limit is invalid (missing or exceeds some limit)"


def find_refusal(job: Job, settings: Settings, capacity: Capacity) -> str:
    """Why the job can never run here; empty when it can."""
    partition = settings.partition(job.spec.partition)
    if partition is None:
        return NO_PARTITION.format(job.spec.partition)
    limit = partition.time_limit
    if limit is not None and any(task.time is not None and task.time > limit for task in job.spec.tasks):
        return TOO_LONG
    if Ledger(capacity).book("", list_variants(job, capacity)) is None:
        return NEVER_FITS
    return ""
