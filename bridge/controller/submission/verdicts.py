"""A cluster's own verdict on a submission, awaited after the commit, so that a refusal is in its own words."""

from __future__ import annotations

import asyncio

from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.core.job_limits import is_held_back
from overspan.bridge.controller.core.outbox import SUBMIT
from overspan.bridge.controller.core.recording import Recorder
from overspan.bridge.controller.core.registry import JobEntry

_LOOK_SECONDS = 0.2
"""Seconds between checks whether the cluster has become stale, which wakes no job."""


async def await_verdict(recorder: Recorder, clusters: Clusters, entry: JobEntry, seconds: float) -> str | None:
    """Wait until a cluster has taken the job, its last has refused it, or will not say soon: the refusal, or None.

    A job that is not sent yet (held, dependent, put off, without a slot) has no verdict to wait for.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    while not entry.launched and not entry.job.over and _is_due(recorder, entry):
        left = deadline - loop.time()
        cluster = clusters.find(entry.cluster)
        if left <= 0 or cluster is None or cluster.stale_since is not None:
            return None
        await recorder.changes.jobs.wait(entry.job.id, min(left, _LOOK_SECONDS))
    return entry.refusal or None


def _is_due(recorder: Recorder, entry: JobEntry) -> bool:
    """Whether its submission may be made now."""
    if is_held_back(entry.job):
        return False
    now = recorder.clock()
    rows = recorder.outbox.of_job(entry.job.id)
    return any(row.kind == SUBMIT and row.next_try_at <= now for row in rows)
