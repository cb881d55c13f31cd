"""In which mode a mount is carried out: clusters may read it through the store, or bring it before the start."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from overspan.adapters.traits import choose_modes
from overspan.bridge.controller.submission.storage_checks import _settle_modes, note_storage
from overspan.bridge.model.documents import decode, encode
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.data.mounts import place_mount


def settle(mode: MountMode, *switches: bool) -> tuple[StorageMount, tuple[str, ...]]:
    return settle_mount(StorageMount("./d", "s3://lab/d", mode, "s3"), *switches)


def settle_mount(mount: StorageMount, *switches: bool) -> tuple[StorageMount, tuple[str, ...]]:
    clusters: list[Any] = [SimpleNamespace(traits=SimpleNamespace(mount_modes=choose_modes(each))) for each in switches]
    wanted = JobSpec("j", (TaskSpec("a", run="x", storage=(mount,)),))
    settled = _settle_modes(wanted, clusters)
    return settled.tasks[0].storage[0], note_storage(wanted, settled)


def test_a_mount_is_read_through_the_store_where_all_clusters_do_so() -> None:
    mount, notes = settle(MountMode.MOUNT, True, True)
    assert mount.read_through and notes == ()
    for switches in ((False,), (True, False)):
        mount, notes = settle(MountMode.MOUNT, *switches)
        assert (mount.mode, mount.read_through) == (MountMode.MOUNT_CACHED, False)
        assert settle_mount(settle(MountMode.MOUNT, True)[0], *switches)[0] == mount
        assert notes[0].startswith("MOUNT of s3://lab/d is carried out as MOUNT_CACHED")


def test_plans_name_a_mode_that_a_supervisor_of_an_earlier_version_knows() -> None:
    """One that took MOUNT for COPY would send nothing, and remove what was written."""
    mount, _ = settle(MountMode.MOUNT, True)
    document = json.loads(json.dumps(encode(mount)))
    assert document["mode"] == "MOUNT_CACHED"
    assert decode(StorageMount, document) == mount
    document.pop("read_through")
    earlier = decode(StorageMount, document)
    assert earlier.written and not earlier.read_through
    assert place_mount("/r", 1, earlier).path == place_mount("/r", 1, mount).path


@pytest.mark.parametrize("mode", [MountMode.COPY, MountMode.MOUNT_CACHED])
def test_other_modes_stay(mode: MountMode) -> None:
    mount, notes = settle(mode, True)
    assert (mount.mode, mount.read_through, notes) == (mode, False, ())
