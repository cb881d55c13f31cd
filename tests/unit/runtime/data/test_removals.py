"""What work does by way of a FUSE mount, beside the uploader and the fetches of its folder."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.stores import TestStore

from overspan.bridge.model.storage import MountMode, StorageMount, StoreAccess
from overspan.bridge.runtime.data.cached_folder import CachedFolder, Senders
from overspan.bridge.runtime.data.fetching import FetchPlace, drop_replaced, fetch
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.fuse.facts import StoreFacts, StoreWaits
from overspan.bridge.runtime.data.fuse.folder import MountedFolder
from overspan.bridge.runtime.data.mounts import MountFolder
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.removals import Removal, RemovalNotes
from overspan.bridge.runtime.data.rescue import rescue_folder
from overspan.bridge.runtime.data.s3 import S3Store

BUCKET = "removals"


class Mount:
    """A mounted folder as a program sees it, and its uploader."""

    def __init__(self, top: Path, access: StoreAccess, bucket: S3Store, senders: Senders) -> None:
        self.top = top
        self.files = top / "files"
        self.files.mkdir(parents=True)
        self.bucket = bucket
        self.senders = senders
        self.access = access
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

    def text(self, name: str) -> bytes:
        return self.bucket.open(f"run/{name}").read(1000)

    def age(self, name: str) -> None:
        """Have a file be quiet for a minute."""
        os.utime(self.files / name, (time.time() - 60,) * 2)


@pytest.fixture
def mount(whole: TestStore, tmp_path: Path) -> Iterator[Mount]:
    for stored in list(whole.make_bucket(BUCKET).list_objects("")):
        whole.open(BUCKET).delete(stored.key)
    bucket = S3Store(whole.access(), BUCKET)
    with ThreadPoolExecutor(4) as files, ThreadPoolExecutor(4) as parts:
        yield Mount(tmp_path / "data/7/m", whole.access(), bucket, Senders(files, parts, files))
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


class BusyStore:
    """The store, while a program does something between a fetch's question and its last byte."""

    def __init__(self, bucket: S3Store, work: Callable[[], None]) -> None:
        self._bucket = bucket
        self._work = work

    def __getattr__(self, name: str) -> Any:
        return getattr(self._bucket, name)

    def open(self, *words: Any) -> Any:
        self._work()
        return self._bucket.open(*words)


class TestFetches:
    """Another node cannot mount, or another task starts, while a program runs."""

    def fetch(self, mount: Mount, work: Callable[[], None] = lambda: None) -> None:
        place = FetchPlace(str(mount.files), mount.state)
        fetch(BusyStore(mount.bucket, work), "run", place, mount.senders.small, "i")

    def drop(self, mount: Mount) -> None:
        place = FetchPlace(str(mount.files), mount.state)
        drop_replaced(mount.bucket, "run", place, mount.senders.small)

    def write(self, mount: Mount, name: str, text: bytes) -> None:
        fd = mount.seen.open_written(name, os.O_WRONLY | os.O_TRUNC)
        assert fd is not None
        os.write(fd, text)
        os.close(fd)

    def test_what_was_written_meanwhile_stays_and_is_sent(self, mount: Mount) -> None:
        mount.bucket.put("run/state", b"old")
        self.fetch(mount, lambda: self.write(mount, "state", b"new state"))
        assert (mount.files / "state").read_bytes() == b"new state"
        mount.age("state")
        mount.look()
        assert mount.text("state") == b"new state"

    def test_so_does_what_was_synced_and_is_written_meanwhile(self, mount: Mount) -> None:
        mount.bucket.put("run/state", b"old")
        self.fetch(mount)
        mount.bucket.put("run/state", b"other")
        self.fetch(mount, lambda: self.write(mount, "state", b"new state"))
        assert (mount.files / "state").read_bytes() == b"new state"
        self.fetch(mount)
        assert (mount.files / "state").read_bytes() == b"new state"

    def test_what_is_replaced_in_the_store_is_replaced_here(self, mount: Mount) -> None:
        mount.bucket.put("run/state", b"old")
        self.fetch(mount)
        mount.bucket.put("run/state", b"other")
        self.fetch(mount)
        assert (mount.files / "state").read_bytes() == b"other" and mount.names() == {"run/state"}
        assert list(mount.files.iterdir()) == [mount.files / "state"]

    def test_what_was_removed_does_not_come_back(self, mount: Mount) -> None:
        mount.bucket.put("run/a", b"1")
        mount.seen.remove_file("a")
        self.fetch(mount)
        assert list(mount.files.iterdir()) == []
        assert mount.look() == set()

    def test_a_file_that_a_program_appends_to_keeps_its_name(self, mount: Mount) -> None:
        log = mount.files / "log"
        fd = mount.seen.create("log", os.O_WRONLY, 0o644)
        os.write(fd, b"1\n")
        mount.age("log")
        mount.look()
        mount.bucket.put("run/log", b"other")
        for replace in (self.drop, self.fetch):
            replace(mount)
            assert log.stat().st_ino == os.fstat(fd).st_ino
        os.close(fd)
        self.drop(mount)
        assert not log.exists() and "log" not in mount.state.files

    def test_a_file_that_goes_is_never_taken_for_one_that_is_to_be_sent(
        self, mount: Mount, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (mount.files / "a").write_bytes(b"1")
        mount.age("a")
        mount.look()
        mount.bucket.put("run/a", b"other")
        seen, unsent, real = mount.uploader.scan(), [], os.unlink

        def unlink(path: str) -> None:
            looker = threading.Thread(target=lambda: unsent.append(mount.uploader.list_unsent(seen)))
            looker.start()
            looker.join(0.05)
            assert unsent == []
            real(path)
            self.looker = looker

        monkeypatch.setattr(os, "unlink", unlink)
        self.drop(mount)
        self.looker.join()
        mount.uploader.send(seen)
        assert mount.text("a") == b"other"

    def test_a_bucket_that_is_not_there_is_told_before_the_start(self, mount: Mount) -> None:
        missing = S3Store(mount.access, "no-such-bucket")
        with pytest.raises(ObjectStoreError) as raised:
            drop_replaced(missing, "run", FetchPlace(str(mount.files), mount.state), mount.senders.small)
        missing.close()
        assert raised.value.trouble is StoreTrouble.MISSING


def test_a_file_that_is_brought_never_replaces_one_of_another_node(
    mount: Mount, monkeypatch: pytest.MonkeyPatch
) -> None:
    mount.bucket.put("run/state", b"old")
    real = mount.seen._download

    def download(stored: StoredObject, part: str) -> None:
        real(stored, part)
        (mount.files / "state").write_bytes(b"of another node")

    monkeypatch.setattr(mount.seen, "_download", download)
    mount.seen.bring("state")
    assert (mount.files / "state").read_bytes() == b"of another node"
    assert list(mount.files.iterdir()) == [mount.files / "state"]


def test_what_is_appended_by_two_goes_behind_each_other(mount: Mount) -> None:
    """Each server's kernel takes another place for the file's end."""
    first = mount.seen.create("log", os.O_WRONLY | os.O_APPEND, 0o644)
    second = mount.seen.open_written("log", os.O_WRONLY | os.O_APPEND)
    assert second is not None
    for fd, text in ((first, b"one\n"), (second, b"two\n")):
        os.pwrite(fd, text, 0)
        os.close(fd)
    assert (mount.files / "log").read_bytes() == b"one\ntwo\n"


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
