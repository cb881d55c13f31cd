"""What work removes or renames by way of a FUSE mount, and what that does to the store."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.stores import TestStore

from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.data.cached_folder import CachedFolder, Senders
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.fuse.facts import StoreFacts, StoreWaits
from overspan.bridge.runtime.data.fuse.folder import MountedFolder
from overspan.bridge.runtime.data.mounts import MountFolder
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject
from overspan.bridge.runtime.data.removals import Removal, RemovalNotes
from overspan.bridge.runtime.data.rescue import rescue_folder
from overspan.bridge.runtime.data.s3 import S3Store

BUCKET = "removals"


class Mount:
    """A mounted folder as a program sees it, and its uploader."""

    def __init__(self, top: Path, bucket: S3Store, senders: Senders) -> None:
        self.top = top
        self.files = top / "files"
        self.files.mkdir(parents=True)
        self.bucket = bucket
        waits = StoreWaits(print)
        self.seen = MountedFolder(str(self.files), bucket, StoreFacts(bucket, "run", waits), waits)
        self.state = FolderState(str(top / "synced.jsonl"))
        self.uploader = CachedFolder(str(self.files), bucket, "run", self.state, senders)

    def look(self, *, ended: bool = False) -> set[str]:
        """Have the uploader look once; what the store has then."""
        self.uploader.send(self.uploader.scan(), ended=ended)
        self.uploader.remove_noted()
        return self.names()

    def names(self) -> set[str]:
        return {stored.key for stored in self.bucket.list_objects("run")}

    def age(self, name: str) -> None:
        """Have a file be quiet for a minute."""
        os.utime(self.files / name, (time.time() - 60,) * 2)


@pytest.fixture
def mount(whole: TestStore, tmp_path: Path) -> Iterator[Mount]:
    for stored in list(whole.make_bucket(BUCKET).list_objects("")):
        whole.open(BUCKET).delete(stored.key)
    bucket = S3Store(whole.access(), BUCKET)
    with ThreadPoolExecutor(4) as files, ThreadPoolExecutor(4) as parts:
        yield Mount(tmp_path / "data/7/m", bucket, Senders(files, parts, files))
    bucket.close()


def test_the_new_name_is_in_the_store_before_the_old_one_goes(mount: Mount) -> None:
    mount.bucket.put("run/old", b"x" * 100)
    mount.seen.rename("old", "new", 0)
    assert mount.look() == {"run/old"}
    mount.age("new")
    assert mount.look() == {"run/new"}
    assert RemovalNotes(str(mount.files)).read() == {}


def test_a_rename_beside_a_look_waits_for_the_next_one(mount: Mount) -> None:
    mount.bucket.put("run/old", b"x" * 100)
    seen = mount.uploader.scan()
    mount.seen.rename("old", "new", 0)
    mount.age("new")
    mount.uploader.send(seen)
    mount.uploader.remove_noted()
    assert mount.names() == {"run/old"}
    assert mount.look() == {"run/new"}


def test_a_folder_that_was_renamed_goes_with_the_object_that_stands_for_it(mount: Mount) -> None:
    mount.bucket.put("run/old/", b"")
    mount.bucket.put("run/old/a", b"1")
    mount.seen.bring("old/a")
    mount.seen.rename("old", "new", 0)
    assert mount.look() == {"run/old/", "run/old/a"}
    mount.age("new/a")
    assert mount.look() == {"run/new/a"}


def test_what_was_removed_goes_in_the_version_that_was_seen_only(mount: Mount) -> None:
    for name in ("removed", "replaced", "rewritten", "gone"):
        mount.bucket.put(f"run/{name}", b"old")
        mount.seen.remove_file(name)
    mount.bucket.put("run/replaced", b"of another job")
    mount.bucket.delete("run/gone")
    os.close(mount.seen.create("rewritten", os.O_WRONLY, 0o644))
    (mount.files / "rewritten").write_bytes(b"old")
    assert mount.look(ended=False) == {"run/removed", "run/replaced", "run/rewritten"}
    mount.age("rewritten")
    # Of the same content, and so of the same version.
    assert mount.look() == {"run/replaced", "run/rewritten"}


def test_a_removal_that_fails_is_tried_again_also_by_another_attempt(mount: Mount, whole: TestStore) -> None:
    mount.bucket.put("run/a", b"1")
    mount.seen.remove_file("a")
    whole.proxy.cut()
    with pytest.raises(ObjectStoreError):
        mount.look()
    whole.proxy.mend()
    assert mount.look() == set()


def test_a_rescue_removes_nothing(mount: Mount) -> None:
    mount.bucket.put("run/a", b"1")
    mount.seen.remove_file("a")
    mount.bucket.put("run/a", b"a later job's")
    mount.bucket.put("run/b", b"2")
    mount.seen.remove_file("b")
    storage = StorageMount("/x", f"s3://{BUCKET}/run", MountMode.MOUNT_CACHED, "s3")
    rescue_folder(MountFolder(str(mount.top), storage), mount.bucket)
    assert mount.names() == {"run/a", "run/b"}


def test_a_later_object_of_the_same_content_is_another_version() -> None:
    removal = Removal("DONE", "e", 1000.0)
    assert removal.means(StoredObject("run/DONE", 0, "e", 1000.9))
    assert not removal.means(StoredObject("run/DONE", 0, "e", 1002.0))
    assert not removal.means(StoredObject("run/DONE", 0, "f", 1000.0))


def test_notes_that_are_damaged_are_passed_over(tmp_path: Path) -> None:
    notes = RemovalNotes(str(tmp_path / "files"))
    assert notes.read() == {}
    notes.add("a/b", StoredObject("run/a/b", 1, "e", 5.0))
    (tmp_path / "removed/x").write_text("{")
    (tmp_path / "removed/z").write_text(json.dumps({"name": "no version"}))
    (tmp_path / "removed/y.new").write_text(json.dumps({"name": "c"}))
    ((path, removal),) = notes.read().items()
    assert removal == Removal("a/b", "e", 5.0)
    notes.take(path)
    assert notes.read() == {}
