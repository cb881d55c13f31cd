"""Estimates: how long a job runs at most, and when the first in the queue starts at the latest. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from overspan.adapters.local.queue.booking import Bookings, Variant
from overspan.bridge.model.job import Job


def limit_run(job: Job) -> float | None:
    """Seconds from the grant to the job's end by its time limits.

    None if a task by whose end the job ends has none, or a task has needs.
    """
    if any(spec.needs for spec in job.spec.tasks):
        return None
    lasting = job.lasting
    limits = [job.time_of(spec.name) for spec in job.spec.tasks if spec in lasting]
    known = [limit for limit in limits if limit]
    if len(known) < len(limits):
        return None
    delays = [spec.termination_delay for spec in job.spec.tasks if spec not in lasting]
    return float(max(known) + max(delays, default=0))


def estimate_start(
    bookings: Bookings, variants: Sequence[Variant], ends: Iterable[tuple[float | None, str]]
) -> float | None:
    """When a job fits if every running launch (its end and key) uses all of its time.

    None if that depends on a launch without a known end.
    """
    trial = bookings.copy()
    for at, key in sorted((at, key) for at, key in ends if at is not None):
        trial.release(key)
        if trial.fits(variants):
            return at
    return None
