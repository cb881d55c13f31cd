"""Paths of a job's volumes on a Slurm cluster: folders below its root, or absolute paths as they are. Pure."""

from __future__ import annotations

import posixpath
from dataclasses import replace

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec


def place_volumes(job: Job, root: str) -> Job:
    """The job with the path of each volume in place of its name; `root` is the cluster's root."""
    if not any(task.volumes for task in job.spec.tasks):
        return job
    tasks = tuple(_place_task(task, f"{root}/volumes") for task in job.spec.tasks)
    return replace(job, spec=replace(job.spec, tasks=tasks))


def _place_task(task: TaskSpec, folder: str) -> TaskSpec:
    return replace(task, volumes={target: posixpath.join(folder, name) for target, name in task.volumes.items()})
