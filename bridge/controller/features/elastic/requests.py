"""What people ask about the size of elastic tasks."""

from __future__ import annotations

from typing import NamedTuple

from overspan.bridge.controller.core.references import Directory
from overspan.bridge.controller.features.elastic.elastic_tasks import ElasticTasks
from overspan.bridge.lifecycle.members import elastic_of
from overspan.bridge.model.errors import InvalidRequest, NotFound


class ScaledTask(NamedTuple):
    """A task's bounds, how many members it is to have, and how many it has, coming ones included."""

    task: str
    least: int
    most: int
    wanted: int
    present: int


class ScaleRequests:
    """The port of elastic tasks for the API."""

    def __init__(self, elastic: ElasticTasks, directory: Directory) -> None:
        self._elastic = elastic
        self._directory = directory

    async def scale(self, ref: str, task: str, size: int | None, by: str) -> ScaledTask:
        """Set how many members a task is to have; None: as its file says, and more where there is room.

        Raises NotFound, InvalidRequest for a task that is not elastic and a number beyond its bounds, and Conflict.
        """
        target = await self._directory.find(ref)
        job, name = target.entry.job, task or target.task
        names = [spec.name for spec in job.spec.tasks if spec.elastic is not None]
        if name not in [spec.name for spec in job.spec.tasks]:
            known = ", ".join(spec.name for spec in job.spec.tasks)
            raise NotFound(f"job {job.id} has no task {name!r}", remedy=f"its tasks: {known}")
        elastic = elastic_of(job, name)
        if elastic is None:
            there = (
                f"its elastic tasks: {', '.join(names)}" if names else "write `elastic: {min: 1, max: 8}` in its file"
            )
            raise InvalidRequest(f"{name} is not elastic: its size is part of job {job.id}", remedy=there)
        if size is not None and not elastic.least <= size <= elastic.most:
            bounds = f"{elastic.least} to {elastic.most}"
            raise InvalidRequest(f"{name} has {bounds} members, and {size} is asked for", remedy=f"name {bounds}")
        await self._elastic.scale(job.id, name, size, by)
        return ScaledTask(name, elastic.least, elastic.most, *self._elastic.count(job.id, name))
