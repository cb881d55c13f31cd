"""Where the data of a job's storage lies on a node, and the stores that it comes from.

ROOT/data/N/MOUNT/          one folder of a store, for all tasks of job N that mount it
    mount.json              what it is
    files                   the folder, or file, that targets are links to
    synced.jsonl            what of it is in the store
    removed/                what of the store is to be removed (removals.py)
ROOT/data/cache/            contents that are only read, for all jobs (cache.py)
"""

from __future__ import annotations

import json
import os
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.model.storage import MountMode, ObjectUrl, StorageMount, parse_mounted_url
from overspan.bridge.runtime.data.folder_state import FolderState

FOLDER = "data"


class MountFolder(NamedTuple):
    """One mounted folder of a store on this node."""

    path: str
    mount: StorageMount

    @property
    def files(self) -> str:
        """What targets are links to."""
        return os.path.join(self.path, "files")

    @property
    def url(self) -> ObjectUrl:
        """The place in the store."""
        return parse_mounted_url(self.mount.url)

    @property
    def written(self) -> bool:
        """Whether work writes to it."""
        return self.mount.written

    def open_state(self) -> FolderState:
        """What of it is in the store."""
        return FolderState(os.path.join(self.path, "synced.jsonl"))

    def make(self) -> None:
        """Make it, with what says what it is. Raises OSError."""
        os.makedirs(self.path, mode=0o700, exist_ok=True)
        mount = self.mount
        facts = {"url": mount.url, "mode": mount.mode.value, "store": mount.store, "markers": list(mount.markers)}
        path = os.path.join(self.path, "mount.json")
        # In one step: on a full disk nobody could tell any more what an earlier attempt has left.
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(facts, file)
        os.replace(f"{path}.new", path)
        if self.written:
            os.makedirs(self.files, mode=0o755, exist_ok=True)

    def remove(self) -> None:
        """Remove all of it from the node."""
        # Not at the top: supervisors that move no data import this module too.
        import shutil

        shutil.rmtree(self.path, ignore_errors=True)


def place_mount(root: str, job: int, mount: StorageMount) -> MountFolder:
    """Where a mount of a job lies; those of one place that work writes to share a folder, and so do the others."""
    # Not at the top: it loads OpenSSL.
    import hashlib

    text = "\0".join((mount.store, mount.url, mount.mode.value))
    return MountFolder(os.path.join(name_folder(root, job), hashlib.sha256(text.encode()).hexdigest()[:16]), mount)


def list_folders(root: str, job: int) -> list[MountFolder]:
    """What a job has left on this node."""
    top = name_folder(root, job)
    try:
        names = sorted(os.listdir(top))
    except OSError:
        return []
    found = (read_folder(os.path.join(top, name)) for name in names)
    return [folder for folder in found if folder is not None]


def remove_if_empty(root: str, job: int) -> None:
    """Remove a job's own folder where nothing is in it."""
    try:
        os.rmdir(name_folder(root, job))
    except OSError:
        pass


def name_folder(root: str, job: int) -> str:
    """The folder of a job's storage."""
    return os.path.join(root, FOLDER, str(job))


def read_folder(path: str) -> Optional[MountFolder]:
    """The folder that is described there; None for another one."""
    try:
        with open(os.path.join(path, "mount.json"), encoding="utf-8") as file:
            facts = json.load(file)
        mode, markers = MountMode(facts["mode"]), tuple(facts["markers"])
        return MountFolder(path, StorageMount("", facts["url"], mode, facts["store"], markers))
    except (OSError, ValueError, KeyError, TypeError):
        return None
