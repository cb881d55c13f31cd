"""How long a cluster has to find nodes for a job that could go to another one. Pure."""

from __future__ import annotations

from overspan.adapters.kubernetes.launches.gang import count_pods
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.job import Job

PLACE_SECONDS, POD_SECONDS, MOST_SECONDS = 10.0, 0.2, 60.0
"""A time for any job, one for each of its pods, and the most of both."""
AUTOSCALED_SECONDS = 900.0
"""For a cluster that makes its nodes when pods ask for them."""


def find_failover_timeout(job: Job, settings: Settings) -> float:
    """Seconds within which all pods of a job have to have their nodes."""
    if settings.failover_after is not None:
        return float(settings.failover_after)
    if settings.autoscaler:
        return AUTOSCALED_SECONDS
    return min(PLACE_SECONDS + POD_SECONDS * count_pods(job), MOST_SECONDS)
