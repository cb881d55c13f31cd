"""Where an evaluation runs, and whether a checkpoint's path means the same folder there."""

from __future__ import annotations

from dataclasses import replace

from overspan.bridge.controller.core.clusters import Clusters
from overspan.bridge.model.errors import Rejected
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import is_object_url


def place_evaluation(template: JobSpec, source: str) -> JobSpec:
    """An evaluation's job with its clusters: one that names none runs where its checkpoints are."""
    return template if template.places else replace(template, clusters=(source,))


def mount_folder(template: JobSpec, writer: TaskSpec, path: str) -> JobSpec:
    """An evaluation's job whose tasks have the volume on which another task writes the checkpoints below `path`."""
    volumes = {target: name for target, name in writer.volumes.items() if _is_above(target, path)}
    if not volumes:
        return template
    tasks = (replace(task, volumes={**volumes, **task.volumes}) for task in template.tasks)
    return replace(template, tasks=tuple(tasks))


def _is_above(folder: str, path: str) -> bool:
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")


def translate_path(clusters: Clusters, path: str, source: str, target: str) -> str:
    """The path as the cluster `target` has what `source` has at `path`. Rejected where it has no such folder.

    A URL of an object store is the same everywhere.
    """
    if is_object_url(path):
        return path
    found = path if source == target else clusters.shared_paths.translate(path, source, target)
    if found is not None:
        return found
    raise Rejected(
        f"the cluster {target} does not see {path} of {source}, so an evaluation there cannot read the checkpoint",
        remedy=f"run the evaluation on {source} (`cluster: {source}` in `on_checkpoint`), or say in the configuration "
        f"what both call the folder: `paths` of {source} and of {target}",
    )
