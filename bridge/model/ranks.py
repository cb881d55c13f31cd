"""Queue order of waiting jobs: by priority less nice, then by submission; array elements by index."""

from __future__ import annotations

from typing import Union

from overspan.bridge.model.events import SetNice, SetPriority
from overspan.bridge.model.job import Job
from overspan.bridge.model.records import NamedTuple


class Rank(NamedTuple):
    """A place in a queue; the lowest goes first."""

    behind: int
    """Nice less priority."""
    submitted_at: float
    job: int
    """The job's number, for an element its array's."""
    element: int = -1
    """An element's index."""


def rank_job(job: Job) -> Rank:
    """The job's place."""
    number, index = (job.id, -1) if job.element is None else (job.element.array, job.element.index)
    return Rank(job.nice - (job.priority or 0), job.submitted_at, number, index)


def change_rank(rank: Rank, nice: int, event: Union[SetPriority, SetNice]) -> tuple[Rank, int]:
    """The place and the nice value after an order; `nice` is the part of `rank.behind` that is nice."""
    if isinstance(event, SetPriority):
        return rank._replace(behind=nice - event.priority), nice
    return rank._replace(behind=rank.behind + event.nice - nice), event.nice
