"""Volumes that are folders below a cluster's root, where `volumes` of a job file looks for them."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence

from overspan.bridge.model.errors import Conflict, NotFound
from overspan.bridge.model.volumes import AppliedVolume, VolumeRecord, VolumeRequest

FOLDER = "folder"
"""The kind of such a volume."""
READY = "Ready"


class VolumeFolders:
    """The folders in one folder of this machine."""

    def __init__(self, top: str) -> None:
        self._top = top

    async def apply(self, request: VolumeRequest) -> AppliedVolume:
        """Make the folder where it is missing. Raises Conflict where something else has its name."""
        made = await asyncio.to_thread(self._make, request.name)
        return AppliedVolume(describe_folder(request.name), "made" if made else "unchanged", note_options(request))

    async def list(self) -> Sequence[VolumeRecord]:
        """The folders that there are, those too that jobs have made."""
        return await asyncio.to_thread(self._list)

    async def delete(self, name: str) -> None:
        """Remove the folder with all that is in it."""
        await asyncio.to_thread(self._delete, name)

    def _make(self, name: str) -> bool:
        path = os.path.join(self._top, name)
        if os.path.isdir(path):
            return False
        try:
            os.makedirs(path, mode=0o700)
        except OSError as error:
            raise Conflict(f"the folder {path} cannot be made: {error.strerror}") from None
        return True

    def _list(self) -> Sequence[VolumeRecord]:
        try:
            with os.scandir(self._top) as found:
                return [describe_folder(name) for name in sorted(each.name for each in found if each.is_dir())]
        except FileNotFoundError:
            return []

    def _delete(self, name: str) -> None:
        path = os.path.join(self._top, name)
        if not os.path.isdir(path):
            raise NotFound(f"there is no volume {name}", remedy="`span volume ls` lists those that there are")
        try:
            # A link is the owner's way to another disk: what it leads to stays.
            if os.path.islink(path):
                os.unlink(path)
            else:
                shutil.rmtree(path)
        except OSError as error:
            raise Conflict(f"the folder {path} cannot be removed: {error.strerror}") from None


def describe_folder(name: str) -> VolumeRecord:
    """A folder as a volume: all nodes that see the root may write into it."""
    return VolumeRecord(name, FOLDER, access="ReadWriteMany", status=READY)


def note_options(request: VolumeRequest) -> tuple[str, ...]:
    """What was asked for and means nothing to a folder."""
    given = {
        "size": request.mib is not None,
        "class": bool(request.storage_class),
        "access mode": bool(request.access_mode),
        "namespace": bool(request.namespace),
    }
    names = [name for name, there in given.items() if there]
    return (f"the {' and the '.join(names)} has no effect: the volume is a folder",) if names else ()
