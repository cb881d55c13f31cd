"""The submitter's files in pods: `workdir` and the sources of `file_mounts`.

Each source is packed once on this machine and unpacked by an init container of the task's own image before the task
starts. An archive goes through the API, as a ConfigMap of the launch's, or lies below the cluster's `root`. What is on
a volume that both sides share does not travel. `pack_files` reads the disk; the rest is pure.
"""

from __future__ import annotations

import base64
import io
import os
import posixpath
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

from overspan.adapters.archives import ArchiveItem, list_items, write_archive
from overspan.adapters.kubernetes.manifests.names import label_launch, name_archive
from overspan.adapters.kubernetes.manifests.scripts import ARCHIVES_DIR, FILES_DIR, RUN_DIR, UNPACK, make_command
from overspan.adapters.kubernetes.manifests.volumes import (
    VOLUME_PREFIX,
    Mounts,
    check_targets,
    find_shared,
    merge_mounts,
    mount_volume,
    resolve_target,
)
from overspan.adapters.kubernetes.settings import Settings
from overspan.bridge.model.errors import InvalidRequest, OverspanError
from overspan.bridge.model.job import Job
from overspan.bridge.model.spec import Form, TaskSpec

Document = dict[str, Any]

MAX_ARCHIVE = 1 << 20
"""Bytes of an archive in a ConfigMap: the API's own limit for all of its data."""
MAX_UNPACKED = 256 << 20
"""Bytes that one source may have before it is packed, where there is no `root`."""
MAX_AT_ROOT = 64 << 30
UNPACKER = "unpack"

_FILES, _ENTRY = f"{VOLUME_PREFIX}files", "archive.tar.gz"
_REMEDY = (
    "leave out what the job does not need by a .skyignore file, put large data on a volume (`volumes`), or have the "
    "cluster's `root` on a volume that this machine and the pods share"
)


@dataclass(frozen=True)
class Archive:
    """A packed source: the name of its top entry, and its bytes, or the path of the archive on a shared volume."""

    name: str
    digest: str
    data: bytes = b""
    path: str = ""


class TaskFiles(NamedTuple):
    """What the files of a task make of its pod."""

    workdir: str
    mounts: Mounts
    unpacker: Document | None
    """The init container, without the image; None where nothing has to be unpacked."""
    links: tuple[tuple[str, str], ...] = ()
    """What has to appear below the home: the path of the copy, and the one below the home."""


def pack_files(job: Job, settings: Settings, *, write: bool = True) -> dict[str, Archive]:
    """Pack what a job's tasks name on this machine, by the path of each source. Blocking.

    With a `root` large archives are written there, unless `write` is false: then only their size is known. Raises
    InvalidRequest for a path that is missing or too large, OverspanError (to be tried again) for a file that changes
    meanwhile or a `root` that cannot be written.
    """
    found: dict[str, Archive] = {}
    for task in job.spec.tasks:
        sources = (task.workdir, *task.file_mounts.values()) if task.form is Form.RUN else ()
        for source in dict.fromkeys(sources):
            if not source or source in found or find_shared(source, settings) is not None:
                continue
            is_workdir = source == task.workdir
            if job.spec.origin.job:
                _refuse_inside(job, task, source)
                continue
            if os.path.exists(source):
                found[source] = _pack(source, settings, is_workdir, write)
            elif not is_workdir or _is_below(source, job.spec.origin.directory):
                raise InvalidRequest(
                    f"{task.name}: there is no {source} to send to the cluster",
                    remedy="see `workdir` and `file_mounts`",
                )
    return found


def _refuse_inside(job: Job, task: TaskSpec, source: str) -> None:
    """Files of the daemon's machine do not travel for a pod, which has others; a workdir may be the image's."""
    if source != task.workdir or _is_below(source, job.spec.origin.directory):
        raise InvalidRequest(
            f"{task.name}: {source} is in a pod, from where no files travel",
            remedy="have it on a volume that both mount (`volumes`), or in the image",
        )


def _is_below(path: str, folder: str) -> bool:
    return folder not in ("", "/") and (path == folder or path.startswith(f"{folder}/"))


def _pack(source: str, settings: Settings, folder: bool, write: bool) -> Archive:
    items = list_items(source, MAX_AT_ROOT if settings.root else MAX_UNPACKED, _REMEDY)
    if folder and items[0].kind != tarfile.DIRTYPE:
        raise InvalidRequest(f"the workdir {source} is a file", remedy="name the folder that it is in")
    size = sum(item.size for item in items)
    if size <= MAX_UNPACKED:
        digest, data = _pack_items(items)
        if len(data) <= MAX_ARCHIVE:
            return Archive(items[0].name, digest, data)
        size = len(data)
    if not settings.root:
        raise InvalidRequest(
            f"{source} has {size / (1 << 20):.1f} MiB when packed, and 1 MiB goes through the API of a cluster",
            remedy=_REMEDY,
        )
    if write:
        return _store(items, settings.root)
    return Archive(items[0].name, "", path=f"{settings.root}/files/CONTENT.tar.gz")


@lru_cache(maxsize=16)
def _pack_items(items: tuple[ArchiveItem, ...]) -> tuple[str, bytes]:
    """The hash of the content, and the archive. Cached, since arrays send the same files; items change with a file."""
    packed = io.BytesIO()
    digest = write_archive(items, packed)
    return digest, packed.getvalue()


def _store(items: tuple[ArchiveItem, ...], root: str) -> Archive:
    """Write an archive below the shared root, under the name of its content."""
    folder, part = f"{root}/files", ""
    try:
        os.makedirs(folder, exist_ok=True)
        fd, part = tempfile.mkstemp(dir=folder, prefix=".", suffix=".part")
        with os.fdopen(fd, "wb") as file:
            digest = write_archive(items, file)
            os.fchmod(file.fileno(), 0o644)
        path = f"{folder}/{digest}.tar.gz"
        os.replace(part, path)
    except OSError as error:
        raise OverspanError(
            f"{error.filename or folder} cannot be written: {error.strerror}", remedy="make room there, or mend `root`"
        ) from None
    finally:
        if part and os.path.exists(part):
            os.unlink(part)
    return Archive(items[0].name, digest, path=path)


def render_archives(token: str, files: Mapping[str, Archive]) -> tuple[Document, ...]:
    """The ConfigMaps of a launch's archives."""
    return tuple(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": name_archive(token, number), "labels": label_launch(token)},
            "immutable": True,
            "binaryData": {_ENTRY: base64.b64encode(archive.data).decode("ascii")},
        }
        for number, archive in enumerate(files.values())
        if not archive.path
    )


def render_files(token: str, task: TaskSpec, files: Mapping[str, Archive], settings: Settings) -> TaskFiles:
    """Where a task's files appear in its pods. Raises InvalidRequest for targets that cannot be."""
    numbers = {source: number for number, source in enumerate(files)}
    workdir = place_workdir(task, files)
    if task.form is not Form.RUN:
        return TaskFiles(workdir, Mounts(), None)
    sources = [task.workdir] if task.workdir in files else []
    parts: list[Mounts] = []
    links: list[tuple[str, str]] = []
    for target, source in task.file_mounts.items():
        if source not in files:
            parts.append(_mount_shared(task, resolve_target(task, target, workdir), source, settings))
            continue
        sources.append(source)
        inside = f"{numbers[source]}/{files[source].name}"
        if target.startswith("~/"):
            links.append((f"{FILES_DIR}/{inside}", posixpath.normpath(target[2:])))
        else:
            path = resolve_target(task, target, workdir)
            parts.append(Mounts((), ({"name": _FILES, "mountPath": path, "subPath": inside},)))
    check_targets(task, [mount["mountPath"] for part in parts for mount in part.mounts])
    if not sources:
        return TaskFiles(workdir, merge_mounts(parts), None)
    needed = {numbers[source]: files[source] for source in dict.fromkeys(sources)}
    unpacker, volumes = _render_unpacker(token, needed, settings)
    top = Mounts(volumes, ({"name": _FILES, "mountPath": FILES_DIR},))
    return TaskFiles(workdir, merge_mounts([top, *parts]), unpacker, tuple(links))


def place_workdir(task: TaskSpec, files: Mapping[str, Archive]) -> str:
    """The working directory in a pod; empty is the image's own."""
    if task.workdir in files:
        return f"{FILES_DIR}/{list(files).index(task.workdir)}/{files[task.workdir].name}"
    return task.workdir or (RUN_DIR if task.form is Form.BATCH else "")


def _mount_shared(task: TaskSpec, path: str, source: str, settings: Settings) -> Mounts:
    shared = find_shared(source, settings)
    if shared is None:
        raise InvalidRequest(f"{task.name}: there is no {source} to send to the cluster", remedy="see `file_mounts`")
    name, volume = shared
    return mount_volume(name, volume, path, settings, source[len(volume.path) :].strip("/"))


def _render_unpacker(
    token: str, archives: Mapping[int, Archive], settings: Settings
) -> tuple[Document, tuple[Document, ...]]:
    """The init container, and the volumes that it needs."""
    parts = [Mounts(({"name": _FILES, "emptyDir": {}},), ({"name": _FILES, "mountPath": FILES_DIR},))]
    words: list[str] = []
    for number, archive in archives.items():
        path = archive.path or f"{ARCHIVES_DIR}/{number}/{_ENTRY}"
        shared = find_shared(archive.path, settings) if archive.path else None
        if shared is not None:
            parts.append(mount_volume(*shared, shared[1].path, settings))
        else:
            name = f"{VOLUME_PREFIX}archive-{number}"
            volume = {"name": name, "configMap": {"name": name_archive(token, number)}}
            mount = {"name": name, "mountPath": posixpath.dirname(path), "readOnly": True}
            parts.append(Mounts((volume,), (mount,)))
        words += [path, f"{FILES_DIR}/{number}"]
    volumes, mounts = merge_mounts(parts)
    once = [mount for place, mount in enumerate(mounts) if mount not in mounts[:place]]
    return {"name": UNPACKER, **make_command(UNPACK, words), "volumeMounts": once}, volumes
