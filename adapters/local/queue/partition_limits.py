"""The time limit that a partition gives to what names none, as Slurm does. Pure."""

from __future__ import annotations

from overspan.adapters.local.settings import Partition
from overspan.bridge.model.events import SetTime
from overspan.bridge.model.job import Job

_TOKEN = "partition"


def list_limits(job: Job, partition: Partition | None, at: float) -> list[tuple[str, SetTime]]:
    """Orders, with their tokens, that give each task without a time limit the partition's.

    They are given with the grant: a job that waits may still go to another cluster, where it has no limit. A limit that
    an order has changed or taken away stays. Of a group across clusters the daemon keeps the limits.
    """
    if partition is None or partition.time_limit is None or job.spec.across:
        return []
    bare = [spec.name for spec in job.spec.tasks if not spec.time and job.task(spec.name).time is None]
    return [(f"{_TOKEN}-{name}", SetTime(at, partition.time_limit, name)) for name in bare]
