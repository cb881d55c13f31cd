"""Wall times that may not grow for ever: those of launches whose cluster has fixed the end of what runs there."""

from __future__ import annotations

from overspan.adapters.abilities import Ceilings
from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.controller.orders.references import Target
from overspan.bridge.model.durations import format_limit
from overspan.bridge.model.errors import Conflict


async def check_time(clusters: Clusters, target: Target, seconds: int | None) -> None:
    """Raise Conflict for a wall time that the job's present launch cannot have; None is no limit.

    Raises Unreachable where only the cluster could tell.
    """
    entry = target.entry
    job = entry.job
    cluster = clusters.find(entry.cluster)
    if cluster is None or job.over or not entry.watched or not isinstance(cluster.adapter, Ceilings):
        return
    for task in job.tasks:
        spec = job.spec_of(task.name)
        present = spec.time if task.time is None else task.time or None
        grows = present is not None and (seconds is None or seconds > present)
        if task.over or target.task not in ("", task.name) or not (grows or (present is None and seconds)):
            continue
        longest = await cluster.adapter.longest_time(entry.handle, task.name)
        if longest is not None and (seconds is None or seconds > longest):
            # scontrol prints the message alone, so the way is in it.
            way = _name_way(job.id, waits=job.granted_at is None)
            most = format_limit(longest)
            raise Conflict(f"job {job.id}: {task.name} can have {most} at most, since its pods end soon after: {way}")


def _name_way(job_id: int, waits: bool) -> str:
    if waits:
        return "cancel it, and submit it again with the new limit"
    return f"`span scontrol requeuehold {job_id}`, the new limit and `span release {job_id}` start it again with more"
