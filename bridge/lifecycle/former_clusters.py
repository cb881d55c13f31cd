"""The clusters where attempts of a job wrote to folders of object stores: each keeps what could not be sent. Pure."""

from __future__ import annotations

from typing import Optional

from overspan.bridge.lifecycle.flushing import has_sent_all
from overspan.bridge.model.job import FormerCluster, Job
from overspan.bridge.model.records import NamedTuple, replace


class WrittenPlace(NamedTuple):
    """A cluster where a job wrote, the handle of its newest launch there, and the job with only its attempts there."""

    cluster: str
    handle: str
    job: Job


def note_former(before: Job, after: Job, handle: str) -> Job:
    """The job after an event; where that took it to another cluster, with the one that it left if it wrote there.

    `handle` names its newest launch on the cluster before.
    """
    if after.cluster == before.cluster or not before.cluster:
        return after
    start = before.former[-1].attempts if before.former else None
    if not _has_written(_cut(before, start)):
        return after
    counts = tuple(len(task.attempts) for task in before.tasks)
    return replace(after, former=(*after.former, FormerCluster(before.cluster, handle, before.candidate, counts)))


def list_places(job: Job, cluster: str, handle: str) -> list[WrittenPlace]:
    """The clusters that may have data of a job, whose newest launch is there: the former ones, and the present one.

    A cluster that had it twice is there once, with the newest handle.
    """
    places: dict[str, WrittenPlace] = {}
    start: Optional[tuple[int, ...]] = None
    for former in job.former:
        part = _cut(job, start, former.attempts)
        part = replace(part, cluster=former.cluster, candidate=former.candidate)
        if former.candidate < len(job.spec.places):
            part = replace(part, spec=job.spec.take(job.spec.places[former.candidate]))
        _add(places, WrittenPlace(former.cluster, former.handle, part))
        start = former.attempts
    # A launch that the present cluster never had has left nothing there.
    if handle or not places:
        _add(places, WrittenPlace(cluster, handle, _cut(job, start)))
    return list(places.values())


def may_have_left(job: Job) -> bool:
    """Whether an ended job may have data that no store has: an attempt that could write has not sent all.

    On a volume of pods each attempt has a folder of its own, and so has each run of a node.
    """
    return any(
        not has_sent_all(attempt) or any(node.run for node in attempt.nodes)
        for task in job.tasks
        if job.spec_of(task.name).flushes
        for attempt in task.attempts
        if any(node.started_at is not None for node in attempt.nodes)
    )


def _has_written(job: Job) -> bool:
    return any(
        node.started_at is not None
        for task in job.tasks
        if job.spec_of(task.name).flushes
        for attempt in task.attempts
        for node in attempt.nodes
    )


def _cut(job: Job, start: Optional[tuple[int, ...]] = None, end: Optional[tuple[int, ...]] = None) -> Job:
    """The job with a part of each task's attempts."""
    if start is None and end is None:
        return job
    starts, ends = start or (0,) * len(job.tasks), end or tuple(len(task.attempts) for task in job.tasks)
    tasks = tuple(
        replace(task, attempts=task.attempts[first:last]) for task, first, last in zip(job.tasks, starts, ends)
    )
    return replace(job, tasks=tasks)


def _add(places: dict[str, WrittenPlace], place: WrittenPlace) -> None:
    """Add a place, behind what the cluster had of the job before."""
    known = places.get(place.cluster)
    if known is not None:
        tasks = tuple(
            replace(later, attempts=(*earlier.attempts, *later.attempts))
            for earlier, later in zip(known.job.tasks, place.job.tasks)
        )
        place = WrittenPlace(place.cluster, place.handle or known.handle, replace(place.job, tasks=tasks))
    places[place.cluster] = place
