"""Checks at submission that the cluster can mount what a job's storage names, and that a configured store has it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from overspan.bridge.config.store_settings import StoreSettings, find_store, open_access
from overspan.bridge.controller.core.clusters import Cluster
from overspan.bridge.model.errors import InvalidRequest, Place
from overspan.bridge.model.spec import JobSpec
from overspan.bridge.model.storage import WEB, MountMode, StorageMount, is_web_url, parse_object_url

_OTHER_CLUSTER = "run it on the local cluster"
_OTHER_MODE = "write `mode: MOUNT_CACHED` where the task writes, `mode: COPY` where it reads"


def check_storage(spec: JobSpec, clusters: Sequence[Cluster], stores: Mapping[str, StoreSettings]) -> JobSpec:
    """The spec with the store of each mount. Raises InvalidRequest with the lines of all mounts that cannot be.

    `clusters` are all that may have the job.
    """
    faults: list[InvalidRequest] = []
    tasks = []
    spec = _settle_modes(spec, clusters)
    for task in spec.tasks:
        mounts = []
        for mount in task.storage:
            try:
                for cluster in clusters:
                    _check_mode(mount, cluster)
                    _check_form(spec, mount, cluster)
                mounts.append(replace(mount, store=_choose_store(mount, stores)))
            except InvalidRequest as error:
                error.place = spec.mount_places.get(mount.url)
                faults.append(error)
        tasks.append(replace(task, storage=tuple(mounts)) if task.storage else task)
    if faults:
        raise _join(faults)
    return replace(spec, tasks=tuple(tasks))


def note_storage(wanted: JobSpec, checked: JobSpec) -> tuple[str, ...]:
    """A sentence for each mount that is carried out in another mode."""
    pairs = (
        (before, after)
        for one, other in zip(wanted.tasks, checked.tasks, strict=True)
        for before, after in zip(one.storage, other.storage, strict=True)
    )
    return tuple(
        f"{before.mode.value} of {before.url} is carried out as {after.mode.value}: what is there is brought before "
        "the start, and what is written is sent"
        for before, after in pairs
        if before.mode is not after.mode and not after.read_through
    )


def _settle_modes(spec: JobSpec, clusters: Sequence[Cluster]) -> JobSpec:
    """The spec with the modes that mounts are carried out in, by which obstacles are found."""
    tasks = (
        replace(task, storage=tuple(_settle_mode(mount, clusters) for mount in task.storage)) if task.storage else task
        for task in spec.tasks
    )
    return replace(spec, tasks=tuple(tasks))


def _settle_mode(mount: StorageMount, clusters: Sequence[Cluster]) -> StorageMount:
    """MOUNT becomes MOUNT_CACHED, which is read through the store where all clusters can have it so."""
    modes = [each.traits.mount_modes for each in clusters]
    wanted = mount.mode is MountMode.MOUNT or mount.read_through
    if not wanted or not all(MountMode.MOUNT_CACHED in each for each in modes):
        return mount
    return replace(mount, mode=MountMode.MOUNT_CACHED, read_through=all(MountMode.MOUNT in each for each in modes))


def _check_mode(mount: StorageMount, cluster: Cluster) -> None:
    modes = cluster.traits.mount_modes
    if mount.mode not in modes:
        raise InvalidRequest(
            f"clusters of the kind {cluster.config.kind} cannot carry out {mount.mode.value} of {mount.url}",
            remedy=_OTHER_MODE if modes else _OTHER_CLUSTER,
        )


def _check_form(spec: JobSpec, mount: StorageMount, cluster: Cluster) -> None:
    obstacle = cluster.traits.find_mount_obstacle(spec)
    if obstacle:
        name = cluster.config.name
        raise InvalidRequest(f"{name} cannot mount {mount.url} for this job: {obstacle}", remedy=_OTHER_CLUSTER)


def _choose_store(mount: StorageMount, stores: Mapping[str, StoreSettings]) -> str:
    if is_web_url(mount.url):
        return WEB
    url = parse_object_url(mount.url)
    name = find_store(stores, url.bucket, mount.store, url.scheme)
    if not name:
        entry = f"{mount.store or url.scheme}: {{endpoint: URL, credentials: {{file: ~/.aws/credentials}}}}"
        raise InvalidRequest(
            f"no entry of `stores` in the configuration reaches {mount.url}",
            remedy=f"add `stores: {{{entry}}}`, or {url.bucket} to the `buckets` of one; `span config` shows the files",
        )
    open_access(name, stores[name], os.environ)
    return name


def _join(faults: list[InvalidRequest]) -> InvalidRequest:
    """One error of several, in the order of the file."""
    first, *others = sorted(faults, key=lambda fault: fault.place or Place(""))
    lines = [first.message, *(f"{other.place}: {other.message}" for other in others)]
    return InvalidRequest("\n".join(lines), remedy=first.remedy, place=first.place)
