"""Read `file_mounts`: paths of the submitter's, and SkyPilot's storage, which is a place in an object store."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from overspan.bridge.model.evaluations import EvaluationSpec, ReadyRule
from overspan.bridge.model.spec import TaskSpec
from overspan.bridge.model.storage import (
    MountMode,
    StorageMount,
    is_object_url,
    is_web_url,
    parse_mounted_url,
    parse_web_url,
)
from overspan.bridge.validation.diagnostics import Diagnostics, Fault, nearest
from overspan.bridge.validation.yaml_nodes import Table, key_place, place_in

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_SCHEMES = {"s3": "s3", "gcs": "gs", "r2": "r2", "ibm": "cos", "oci": "oci", "nebius": "nebius"}
"""The scheme of each kind of store that SkyPilot names."""
_OPTIONS = ("config", "mount_options")


class ReadMounts(NamedTuple):
    """What `file_mounts` says, by target: paths, storage, and in words what cannot be carried out."""

    paths: dict[str, str]
    storage: list[StorageMount]
    later: dict[str, str]


def read_mounts(table: Table, entries: Mapping[str, Any], found: Diagnostics) -> ReadMounts:
    """Sort the entries of a task; faults go to `found`."""
    mounts = ReadMounts({}, [], {})
    for target, source in entries.items():
        with found.collecting():
            if isinstance(source, str):
                _read_source(table, target, source, mounts)
            else:
                _read_storage(table, target, source, mounts, found)
    return mounts


def name_markers(task: TaskSpec, watches: Sequence[EvaluationSpec]) -> TaskSpec:
    """The task whose storage knows the files by which evaluations know that a checkpoint is whole."""
    names = (watch.ready.marker for watch in watches if watch.ready.rule is ReadyRule.MARKER)
    markers = tuple(dict.fromkeys(name.rpartition("/")[2] for name in names if "{" not in name))
    if not markers or not task.storage:
        return task
    return replace(task, storage=tuple(replace(mount, markers=markers) for mount in task.storage))


def _read_source(table: Table, target: str, source: str, mounts: ReadMounts) -> None:
    """A path, or a URL alone, of which SkyPilot makes a copy."""
    if is_object_url(source) or _names_file(source):
        mounts.storage.append(StorageMount(target, _read_url(table, target, source), MountMode.COPY))
    elif _URL.match(source):
        mounts.later[target] = f"copy of {source} at {target}"
    else:
        mounts.paths[target] = source


def _read_storage(
    table: Table, target: str, storage: Mapping[str, Any], mounts: ReadMounts, found: Diagnostics
) -> None:
    mode = storage.get("mode", MountMode.MOUNT)
    source, name, kind = storage.get("source"), storage.get("name", ""), str(storage.get("store", ""))
    _note_options(table, target, storage, found)
    if storage.get("type", "bucket") != "bucket":
        mounts.later[target] = f"{mode.value} of a {storage['type']} at {target}"
    elif source is None and not name:
        raise Fault("storage needs a `source` or a `name`", key_place(table, "file_mounts", target))
    elif source is None or isinstance(source, tuple) or not _URL.match(source):
        if isinstance(source, str) and mode is MountMode.COPY and not name:
            mounts.paths[target] = source
        else:
            mounts.storage.append(_read_named(table, target, storage, mode))
    elif _names_file(source) and mode is not MountMode.COPY:
        place = place_in(table, "file_mounts", target, *(("mode",) if "mode" in storage else ()))
        raise Fault(f"a file of a web server is read: it has the mode COPY, and not {mode.value}", place)
    elif not is_object_url(source) and not _names_file(source):
        mounts.later[target] = f"{mode.value} of {source} at {target}"
    else:
        mounts.storage.append(StorageMount(target, _read_url(table, target, source), mode, kind.lower()))


def _read_named(table: Table, target: str, storage: Mapping[str, Any], mode: MountMode) -> StorageMount:
    """A bucket by its name, and what is sent there before the start."""
    source, name, kind = storage.get("source"), storage.get("name", ""), str(storage.get("store", ""))
    if not name:
        place = place_in(table, "file_mounts", target, "source")
        raise Fault("files of this machine are mounted by way of a bucket: write its `name`", place, "name: BUCKET")
    sources = _list_sources(table, target, source) if source is not None else ()
    url = _name_bucket(table, target, name, kind)
    persistent = storage.get("persistent") is not False
    return StorageMount(target, url, mode, kind.lower(), named=True, persistent=persistent, sources=sources)


def _list_sources(table: Table, target: str, source: str | tuple[str, ...]) -> tuple[str, ...]:
    """What is sent to a bucket: of one folder what is in it, of several each under its own name."""
    place = place_in(table, "file_mounts", target, "source")
    if isinstance(source, str):
        return (f"{source.rstrip('/')}/",)
    names: set[str] = set()
    for path in source:
        last = posixpath.basename(posixpath.normpath(path))
        if _URL.match(path) or last in ("", ".", "..", "~", "/"):
            raise Fault(f"{path!r} is no file or folder with a name, which each of several sources is", place)
        if last in names:
            raise Fault(f"two sources are called {last}, and each is sent under its own name", place)
        names.add(last)
    return tuple(posixpath.normpath(path) for path in source)


def _names_file(source: str) -> bool:
    """Whether a source is a file of a web server: SkyPilot writes https:// for containers of Azure too."""
    try:
        return is_web_url(source) and bool(parse_web_url(source))
    except ValueError:
        return False


def _read_url(table: Table, target: str, source: str) -> str:
    try:
        return str(parse_mounted_url(source))
    except ValueError as error:
        raise Fault(str(error), key_place(table, "file_mounts", target)) from None


def _name_bucket(table: Table, target: str, name: str, kind: str) -> str:
    """The URL of a bucket that has no `source`. A kind that SkyPilot does not know is the name of a store."""
    scheme = _SCHEMES.get(kind.lower() or "s3", "s3")
    if kind.lower() == "azure":
        place = place_in(table, "file_mounts", target, "store")
        raise Fault("stores of the kind azure have another protocol than S3", place, nearest(kind, list(_SCHEMES)))
    return _read_url(table, target, f"{scheme}://{name}")


def _note_options(table: Table, target: str, storage: Mapping[str, Any], found: Diagnostics) -> None:
    for key in _OPTIONS:
        if storage.get(key):
            place = place_in(table, "file_mounts", target, key)
            found.note(f"{place}: {key} has no effect: it is for other programs that mount")
    if storage.get("persistent") is False and storage.get("source") and _URL.match(str(storage["source"])):
        place = place_in(table, "file_mounts", target, "persistent")
        found.note(f"{place}: persistent has no effect: a bucket that is given by its URL stays")
