"""Start time-outs: the job's `start_timeout`, Kueue's admission, and the default for failover. Pure."""

from __future__ import annotations

from overspan.adapters.kubernetes.launches.gang import count_pods
from overspan.adapters.kubernetes.observation.launch_progress import WatchedLaunch
from overspan.adapters.kubernetes.observation.projection import PodSnapshot, is_placed
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, Expire, LaunchLost
from overspan.bridge.model.job import Job

GATED = "SchedulingGated"
"""The scheduler's reason of a pod that a queue has not admitted (API, PodSchedulingGated)."""


def judge_wait(
    watched: WatchedLaunch, snapshot: PodSnapshot, admission: int | None, now: float, elapsed: float
) -> Event | None:
    """The event that ends the wait of a launch that has not been granted; None while it may wait.

    `start_timeout` counts from the first pod that has a node; then the launch is lost, and the daemon submits it again
    on a budget. `admission` (seconds) counts from the creation of its pods, by the cluster's clock, and ends the job.
    `now` is the wall clock, `elapsed` the monotonic one.
    """
    pods = list(snapshot.pods.values())
    if watched.again_at or not any(pod.node for pod in pods):
        watched.holds_since = None
    elif watched.holds_since is None:
        watched.holds_since = elapsed
    limit = watched.summary.start_timeout
    waits = any(not is_placed(pod) for pod in pods)
    held = watched.holds_since
    if limit is not None and held is not None and waits and elapsed - held >= limit:
        text = f"not all pods have started within {limit} s of the first that had a node"
        return LaunchLost(now, watched.summary.launch, Cause.NEVER_STARTED.value, text)
    gated = [pod for pod in pods if pod.waiting_reason == GATED]
    if admission is not None and gated and now - min(pod.created_at for pod in gated) >= admission:
        return Expire(now, Cause.NEVER_STARTED.value)
    return None


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
