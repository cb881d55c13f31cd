"""The volume on which a task writes its checkpoints. Pure."""

from __future__ import annotations

import posixpath
from collections.abc import Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.manifests.launch_plans import relocate
from overspan.adapters.kubernetes.manifests.overlay import lay_overlays
from overspan.adapters.kubernetes.manifests.volumes import render_volumes
from overspan.adapters.kubernetes.observation.records import MAIN
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.job import Job

Document = Mapping[str, Any]

_LASTING = ("persistentVolumeClaim", "nfs", "hostPath", "csi", "cephfs", "glusterfs", "iscsi", "fc", "azureFile")
"""Sources that have their files still when the pod is gone."""
_OF_A_NODE = ("hostPath", "iscsi", "fc")
"""Sources that other nodes do not have, or not at the same time."""


class FolderMount(NamedTuple):
    """A volume as a pod's spec has it, and its mount in the container."""

    volume: Document
    mount: Document

    @property
    def of_a_node(self) -> bool:
        """Whether only the node where the task ran is sure to have the files."""
        return any(kind in self.volume for kind in _OF_A_NODE)


def find_mount(job: Job, name: str, path: str, settings: Settings) -> FolderMount:
    """What the pods of a task have mounted at a folder, or above it.

    Raises InvalidRequest where that is nothing, or nothing that outlives a pod.
    """
    if not posixpath.isabs(path):
        raise InvalidRequest(
            f"{path} is relative, and pods have no folder in common", remedy="write an absolute path on a volume"
        )
    found: FolderMount | None = None
    for mounted in _list_mounts(relocate(job, settings), name, settings):
        at = str(mounted.mount["mountPath"]).rstrip("/")
        above = path == at or path.startswith(f"{at}/")
        if above and (found is None or len(at) >= len(str(found.mount["mountPath"]).rstrip("/"))):
            found = mounted
    if found is None:
        raise InvalidRequest(
            f"{path} is on no volume of the pods of {name}: it is gone when a pod is",
            remedy="mount one there, by `volumes` of the task or of the cluster",
        )
    if not any(kind in found.volume for kind in _LASTING):
        kinds = ", ".join(sorted(found.volume.keys() - {"name"}))
        raise InvalidRequest(
            f"{path} is on a volume that goes with its pod ({kinds})", remedy="use a claim, nfs or a hostPath"
        )
    return found


def _list_mounts(job: Job, name: str, settings: Settings) -> list[FolderMount]:
    """The mounts of a task's pods, with those that overlays add."""
    task = job.spec.task(name)
    volumes = render_volumes(task, settings, task.workdir or "/")
    container = {"name": MAIN, "volumeMounts": [dict(mount) for mount in volumes.mounts]}
    spec = {"volumes": [dict(volume) for volume in volumes.volumes], "containers": [container]}
    spec = lay_overlays({"metadata": {}, "spec": spec}, job, settings, task)["spec"]
    by_name = {volume["name"]: volume for volume in spec["volumes"]}
    mounts = [mount for each in spec["containers"] if each["name"] == MAIN for mount in each["volumeMounts"]]
    return [FolderMount(by_name[mount["name"]], mount) for mount in mounts if mount["name"] in by_name]
