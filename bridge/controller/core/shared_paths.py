"""Folders that places have in common under names of their own (`paths` of the configuration). Pure.

This machine and each cluster say what they call such a folder; a path below it is translated when work moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import TaskSpec

HERE = ""
"""This machine, among the names of clusters."""


@dataclass(frozen=True)
class SharedPaths:
    """By place (a cluster, or HERE) and name of a folder, its absolute path there."""

    roots: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def translate(self, path: str, source: str, target: str) -> str | None:
        """The path as `target` has what `source` has at `path`; None where they do not share it."""
        there = self.roots.get(target, {})
        shared = [(root, there[name]) for name, root in self.roots.get(source, {}).items() if name in there]
        above = [(root, other) for root, other in shared if _is_below(path, root)]
        if not above:
            return None
        root, other = max(above, key=lambda pair: len(pair[0]))
        return other.rstrip("/") + path[len(root.rstrip("/")) :] or "/"

    def locate(self, path: str, target: str) -> str:
        """A path of this machine as a cluster has it; one that they do not share is the cluster's own."""
        return self.translate(path, HERE, target) or path

    def locate_of(self, job: Job, path: str, target: str) -> str:
        """A path that a job names, as a cluster has it.

        What was submitted from inside a job names those of its cluster already.
        """
        return path if job.spec.origin.job else self.locate(path, target)

    def move(self, job: Job, target: str) -> Job:
        """A job with the folders and files of its tasks as a cluster has them."""
        if not self.roots.get(target) or not self.roots.get(HERE) or job.spec.origin.job:
            return job
        origin = replace(job.spec.origin, directory=self.locate(job.spec.origin.directory, target))
        tasks = tuple(self._move_task(task, target) for task in job.spec.tasks)
        return replace(job, spec=replace(job.spec, origin=origin, tasks=tasks))

    def _move_task(self, task: TaskSpec, target: str) -> TaskSpec:
        streams = task.streams
        return replace(
            task,
            workdir=self.locate(task.workdir, target),
            file_mounts={path: self.locate(source, target) for path, source in task.file_mounts.items()},
            streams=replace(
                streams,
                output=self.locate(streams.output, target),
                error=self.locate(streams.error, target),
                input=self.locate(streams.input, target),
            ),
        )


def _is_below(path: str, root: str) -> bool:
    return path == root or path.startswith(f"{root.rstrip('/')}/")
