"""Symbolic links for `file_mounts` and `volumes` where the job sees the submitter's file system.

On the local cluster each link that a launch makes, or shares, is on record for it:

    ROOT/mounts/DIGEST@N.R    the link, by its path's digest, is used by the launch N.R: {"target", "source"}

A launch is over when it has no ticket (ROOT/tickets/N.R).
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from types import MappingProxyType

from overspan.bridge.model.file_paths import join_path
from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.spec import TaskSpec

FOLDER = "mounts"
TICKETS = "tickets"
_LOOK = 0.2
_STORAGE = r"/data/[0-9]+/[0-9a-f]{16}/files$"


class LinkRecords(NamedTuple):
    """Where the links of a cluster are on record, and the launch that makes them; an empty root keeps no record."""

    root: str = ""
    handle: str = ""

    @property
    def folder(self) -> str:
        return os.path.join(self.root, FOLDER)

    def list_users(self, target: str) -> list[str]:
        """The launches that a link is on record for."""
        digest = _digest(target)
        names = os.listdir(self.folder) if self.root and os.path.isdir(self.folder) else []
        return [name.partition("@")[2] for name in names if name.startswith(f"{digest}@")]

    def is_live(self, handle: str) -> bool:
        """Whether a launch is not over."""
        return os.path.exists(os.path.join(self.root, TICKETS, handle))

    def record(self, target: str, source: str) -> None:
        """Put the link on record for the launch."""
        if self.root:
            path = os.path.join(self.folder, f"{_digest(target)}@{self.handle}")
            with open(path, "w") as file:
                json.dump({"target": target, "source": source}, file)


def link_mounts(
    spec: TaskSpec,
    cwd: str,
    volumes: str,
    records: LinkRecords = LinkRecords(),  # noqa: B008 - immutable
    storage: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Make each target a link to its source; a volume is a folder below `volumes`, or the path it names.

    `storage` are further targets and sources, of what was brought from object stores.

    A link of launches that are over is replaced. Raises OSError with a sentence when a target is taken by something
    else, or cannot be made.
    """
    if not spec.file_mounts and not spec.volumes and not storage:
        return
    with _locked(records):
        for target, source in _pairs(spec, cwd, volumes):
            _link(target, source, records)
        for target, source in list_storage_links(cwd, storage).items():
            _remove_dangling(target)
            _link(target, source, records)


def list_storage_links(cwd: str, storage: Mapping[str, str]) -> dict[str, str]:
    """The links to what was brought from object stores, by their whole paths."""
    return {_resolve(target, cwd): source for target, source in storage.items()}


def remove_links(links: Mapping[str, str]) -> None:
    """Remove links that lead where they were made to lead."""
    for target, source in links.items():
        with suppress(OSError):
            if os.readlink(target) == source:
                os.unlink(target)


def await_links(links: Mapping[str, str], seconds: float) -> None:
    """Wait so long until links that another machine has made are seen here. Raises OSError with a sentence."""
    deadline = time.monotonic() + seconds
    for target, source in links.items():
        # A network file system may remember for a while that there was nothing.
        while not os.path.exists(source) or os.path.realpath(target) != os.path.realpath(source):
            if time.monotonic() > deadline:
                raise OSError(
                    errno.ENOENT,
                    "what was brought from the store is not seen here; mount it in a shared folder",
                    target,
                )
            with suppress(OSError):
                os.scandir(os.path.dirname(target)).close()
            time.sleep(_LOOK)


def _remove_dangling(target: str) -> None:
    """Remove a link to the data of a launch that was cut off, and is gone."""
    with suppress(OSError):
        if re.search(_STORAGE, os.readlink(target)) and not os.path.exists(target):
            os.unlink(target)


def sweep_links(root: str, handle: str = "") -> None:
    """Remove the records of a launch that is over, or of all such, and the links that no launch uses any more."""
    everything = LinkRecords(root)
    if not os.path.isdir(everything.folder):
        return
    with _locked(everything):
        for name in os.listdir(everything.folder):
            user = name.partition("@")[2]
            if user and handle in ("", user) and not everything.is_live(user):
                _forget(everything, os.path.join(everything.folder, name))


def _forget(records: LinkRecords, path: str) -> None:
    try:
        with open(path) as file:
            known = json.load(file)
        target, source = str(known["target"]), str(known["source"])
    except (OSError, ValueError, KeyError, TypeError):
        target, source = "", ""
    os.unlink(path)
    if target and not records.list_users(target):
        with suppress(OSError):
            if os.readlink(target) == source:
                os.unlink(target)


def _link(target: str, source: str, records: LinkRecords) -> None:
    users = records.list_users(target)
    if os.path.realpath(target) == os.path.realpath(source):
        # What was there before any launch stays afterwards too.
        if users:
            records.record(target, source)
        return
    if os.path.islink(target) and users and not any(map(records.is_live, users)):
        os.unlink(target)
    elif os.path.lexists(target):
        raise OSError(errno.EEXIST, f"cannot mount {source}, there is something else", target)
    try:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        records.record(target, source)
        os.symlink(source, target)
    except FileExistsError:
        if os.path.realpath(target) != os.path.realpath(source):
            raise


@contextmanager
def _locked(records: LinkRecords) -> Iterator[None]:
    """Hold the lock of the cluster's links."""
    if not records.root:
        yield
        return
    os.makedirs(records.folder, mode=0o700, exist_ok=True)
    with open(os.path.join(records.folder, "lock"), "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _digest(target: str) -> str:
    # Not at the top: it loads OpenSSL, a twelfth of a supervisor's start, and few runs have links.
    import hashlib

    return hashlib.sha256(os.fsencode(target)).hexdigest()[:32]


def _pairs(spec: TaskSpec, cwd: str, volumes: str) -> Iterator[tuple[str, str]]:
    for target, source in spec.file_mounts.items():
        path = _resolve(source, cwd)
        if not os.path.exists(path):
            raise OSError(errno.ENOENT, "cannot mount what is not there", path)
        yield _resolve(target, cwd), path
    for target, name in spec.volumes.items():
        folder = name if os.path.isabs(name) else os.path.join(volumes, name)
        os.makedirs(folder, mode=0o700, exist_ok=True)
        yield _resolve(target, cwd), folder


def _resolve(path: str, cwd: str) -> str:
    return join_path(cwd, os.path.expanduser(path))
