"""Volumes of a pod: those of the cluster's settings, and those that a task names. Pure."""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from overspan.adapters.kubernetes.manifests.scripts import BASE
from overspan.adapters.kubernetes.settings import Settings, Volume
from overspan.bridge.model.errors import InvalidRequest
from overspan.bridge.model.spec import TaskSpec

Document = dict[str, Any]

VOLUME_PREFIX = "overspan-"
"""Beginning of the names of all volumes that are rendered; an overlay's have others."""


class Mounts(NamedTuple):
    """`volumes` of a pod and `volumeMounts` of its containers."""

    volumes: tuple[Document, ...] = ()
    mounts: tuple[Document, ...] = ()


def render_volumes(task: TaskSpec, settings: Settings, workdir: str) -> Mounts:
    """The volumes of a task's pods. A name is one of the settings, or else a PersistentVolumeClaim's.

    Raises InvalidRequest for a path of a node, and for what cannot be mounted where it is wanted.
    """
    wanted = [(volume.path, name, volume) for name, volume in settings.volumes.items() if volume.path]
    own = [(resolve_target(task, path, workdir), *split_name(name, settings)) for path, name in task.volumes.items()]
    taken = {path for path, _, _ in own}
    parts = [mount_volume(name, volume, path, settings) for path, name, volume in wanted if path not in taken]
    check_targets(task, [*(path for path, _, _ in wanted if path not in taken), *(path for path, _, _ in own)])
    parts += [
        mount_volume(name, find_volume(task, name, settings), path, settings, inside) for path, name, inside in own
    ]
    return merge_mounts(parts)


def split_name(name: str, settings: Settings) -> tuple[str, str]:
    """The volume that a task names, and the folder in it: `NAME/FOLDER`."""
    if name in settings.volumes or name.startswith(("/", "~", ".")) or ".." in name.split("/"):
        return name, ""
    volume, _, inside = name.partition("/")
    return volume, inside


def mount_volume(name: str, volume: Volume, path: str, settings: Settings, inside: str = "") -> Mounts:
    """One volume at that path; `inside` is a folder or file in it."""
    known = list(settings.volumes)
    end = f"volume-{known.index(name)}" if name in known else f"claim-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    label = VOLUME_PREFIX + end
    mount: Document = {"name": label, "mountPath": path}
    below = posixpath.join(volume.sub_path, inside).rstrip("/")
    if below:
        mount["subPath"] = below
    if volume.read_only:
        mount["readOnly"] = True
    return Mounts(({"name": label, **volume.source},), (mount,))


def find_volume(task: TaskSpec, name: str, settings: Settings) -> Volume:
    """The volume of that name. InvalidRequest for none."""
    known = settings.volumes.get(name)
    if known is not None:
        return known
    if name.startswith(("/", "~", ".")):
        raise InvalidRequest(
            f"{task.name}: the volume {name!r} is a path, and pods do not see the folders of their nodes",
            remedy="name a claim, or a volume of the cluster's settings (`volumes`, which may be a hostPath or nfs)",
        )
    if len(name) > 253 or not re.fullmatch(r"[a-z0-9]([a-z0-9.-]*[a-z0-9])?", name):
        raise InvalidRequest(
            f"{task.name}: {name!r} is neither a volume of the cluster's settings nor the name of a claim",
            remedy="write a name of lower-case letters, digits, '-' and '.'",
        )
    return Volume(claim=name)


def find_shared(path: str, settings: Settings) -> tuple[str, Volume] | None:
    """The volume on which both sides see that absolute path, and its name; None where it has to travel."""
    found = None
    for name, volume in settings.volumes.items():
        inside = volume.shared and (path == volume.path or path.startswith(f"{volume.path}/"))
        if inside and (found is None or len(volume.path) > len(found[1].path)):
            found = (name, volume)
    return found


def resolve_target(task: TaskSpec, path: str, workdir: str) -> str:
    """Where something is mounted, as an absolute path; relative ones start at the working directory."""
    if path.startswith("~"):
        raise InvalidRequest(
            f"{task.name}: {path!r} is below the home, which only the image knows", remedy="write an absolute path"
        )
    return posixpath.normpath(posixpath.join(workdir, path))


def check_targets(task: TaskSpec, paths: Iterable[str]) -> None:
    """Raise InvalidRequest for a path that is taken twice, or is not for mounting."""
    seen: set[str] = set()
    for path in paths:
        if path == "/" or path == BASE or path in seen or ":" in path:
            why = "is mounted twice" if path in seen else "cannot be mounted over"
            raise InvalidRequest(f"{task.name}: {path} {why}", remedy="write another path")
        seen.add(path)


def merge_mounts(parts: Iterable[Mounts]) -> Mounts:
    """Several sets together; a volume that two of them name stands once."""
    volumes: dict[str, Mapping[str, Any]] = {}
    mounts: list[Document] = []
    for part in parts:
        volumes.update({item["name"]: item for item in part.volumes})
        mounts += part.mounts
    return Mounts(tuple(dict(item) for item in volumes.values()), tuple(mounts))
