"""Folders that are sent to a store, and those that are fetched from one."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.stores import TestStore

from overspan.bridge.runtime.data import sending
from overspan.bridge.runtime.data.cache import ContentCache
from overspan.bridge.runtime.data.cached_folder import CachedFolder, Senders, count_bytes, is_open_for_writing
from overspan.bridge.runtime.data.fetching import DataRefused, FetchPlace, fetch
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.s3 import S3Store

MIB = 1 << 20
BUCKET = "folders"


@pytest.fixture
def bucket(whole: TestStore, request: pytest.FixtureRequest) -> Iterator[S3Store]:
    """An empty bucket, by way of the proxy."""
    direct = whole.make_bucket(BUCKET)
    for stored in list(direct.list_objects("")):
        direct.delete(stored.key)
    opened = S3Store(whole.access(), BUCKET)
    yield opened
    opened.close()


@pytest.fixture
def senders() -> Iterator[Senders]:
    with ThreadPoolExecutor(4) as files, ThreadPoolExecutor(4) as parts:
        yield Senders(files, parts, files)


Open = Callable[..., CachedFolder]


@pytest.fixture
def open_folder(bucket: S3Store, senders: Senders, tmp_path: Path) -> Open:
    """Opens the uploader of the folder `out`, as after each start of it."""

    def open_it(markers: tuple[str, ...] = (), shared: bool = False) -> CachedFolder:
        (tmp_path / "out").mkdir(exist_ok=True)
        state = FolderState(str(tmp_path / "sent.jsonl"))
        return CachedFolder(str(tmp_path / "out"), bucket, "run", state, senders, markers, shared=shared)

    return open_it


def write(path: Path, data: bytes, ago: float = 60) -> None:
    """Write a file, so many seconds ago."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (time.time() - ago, time.time() - ago))


class TestSending:
    def test_what_is_written_anew_within_a_tick_of_the_file_s_clock_is_sent(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, whole: TestStore
    ) -> None:
        """Of two tasks one has ended, and the other writes its pointer twice with one time, as kernels count them."""
        (tmp_path / "out").mkdir()
        now = [1000.005]
        state = FolderState(str(tmp_path / "sent.jsonl"))
        folder = CachedFolder(str(tmp_path / "out"), bucket, "run", state, senders, clock=lambda: now[0])
        for text in ("step_1", "step_2"):
            (tmp_path / "out/latest").write_text(text)
            os.utime(tmp_path / "out/latest", (1000.0, 1000.0))
            folder.send(folder.scan(), ended=True)
        now[0] = 1000.1
        folder.send(folder.scan(), ended=True)
        assert whole.texts(BUCKET) == {"run/latest": b"step_2"}

    def test_files_arrive_with_their_content_and_are_not_sent_twice(
        self, open_folder: Open, tmp_path: Path, whole: TestStore
    ) -> None:
        folder = open_folder()
        large = os.urandom(2 * sending.PART + 5)
        write(tmp_path / "out/a/b", b"small")
        write(tmp_path / "out/large", large)
        write(tmp_path / "out/empty", b"")
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/a/b": b"small", "run/large": large, "run/empty": b""}
        assert folder.list_unsent(folder.scan()) == {}
        again = open_folder()
        assert again.list_unsent(again.scan()) == {}

    def test_what_is_fresh_or_open_waits(self, open_folder: Open, tmp_path: Path, whole: TestStore) -> None:
        folder = open_folder()
        write(tmp_path / "out/fresh", b"1", ago=0)
        write(tmp_path / "out/open", b"2", ago=5)
        with open(tmp_path / "out/open", "ab"):
            assert is_open_for_writing(str(tmp_path / "out/open"))
            folder.send(folder.scan())
            assert whole.texts(BUCKET) == {}
            assert count_bytes(folder.list_unsent(folder.scan())) == 2
        # Older than a tick of the file's clock.
        write(tmp_path / "out/fresh", b"1", ago=0.1)
        folder.send(folder.scan(), ended=True)
        assert set(whole.texts(BUCKET)) == {"run/fresh", "run/open"}

    def test_a_log_that_stays_open_is_sent_when_it_is_quiet(
        self, open_folder: Open, tmp_path: Path, whole: TestStore
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/log", b"line", ago=30)
        with open(tmp_path / "out/log", "ab"):
            folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/log": b"line"}

    def test_what_is_removed_here_is_removed_there(self, open_folder: Open, tmp_path: Path, whole: TestStore) -> None:
        folder = open_folder()
        whole.open(BUCKET).put("run/others", b"not ours")
        write(tmp_path / "out/old", b"1")
        folder.send(folder.scan())
        (tmp_path / "out/old").rename(tmp_path / "out/new")
        folder.send(folder.scan())
        assert set(whole.texts(BUCKET)) == {"run/new", "run/others"}

    def test_what_was_renamed_while_it_is_written_keeps_its_old_name_until_the_new_one_is_there(
        self, open_folder: Open, tmp_path: Path, whole: TestStore
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/old", b"1")
        write(tmp_path / "out/log", b"1")
        folder.send(folder.scan())
        write(tmp_path / "out/old", b"22", ago=0)
        (tmp_path / "out/old").rename(tmp_path / "out/new")
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/old": b"1", "run/log": b"1"}
        # A log that is written to all the time is not waited for.
        write(tmp_path / "out/new", b"22", ago=60)
        write(tmp_path / "out/log", b"22", ago=0)
        folder.send(folder.scan())
        write(tmp_path / "out/log", b"333", ago=0)
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/new": b"22", "run/log": b"1"}

    def test_what_another_job_has_written_meanwhile_stays(
        self, open_folder: Open, tmp_path: Path, whole: TestStore
    ) -> None:
        folder = open_folder()
        large = os.urandom(2 * sending.PART + 5)
        for name, data in (("mine", b"1"), ("large", large), ("theirs", b"1"), ("gone", b"1")):
            write(tmp_path / "out" / name, data)
        folder.send(folder.scan())
        whole.open(BUCKET).put("run/theirs", b"2")
        whole.open(BUCKET).delete("run/gone")
        for name in ("mine", "large", "theirs", "gone"):
            (tmp_path / "out" / name).unlink()
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/theirs": b"2"}
        assert folder.state.files == {}

    def test_a_folder_that_is_gone_removes_nothing(self, open_folder: Open, tmp_path: Path, whole: TestStore) -> None:
        folder = open_folder()
        write(tmp_path / "out/a", b"1")
        folder.send(folder.scan())
        (tmp_path / "out").rename(tmp_path / "elsewhere")
        with pytest.raises(FileNotFoundError):
            folder.scan()
        (tmp_path / "out").mkdir()
        with pytest.raises(FileNotFoundError):
            folder.scan()

    def test_a_file_that_changes_on_its_way_is_never_a_mixture(
        self, open_folder: Open, tmp_path: Path, whole: TestStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/large", b"a" * (2 * sending.PART))
        real = sending._read

        def read(fd: int, size: int, offset: int) -> bytes:
            data = real(fd, size, offset)
            if offset:
                write(tmp_path / "out/large", b"b" * (2 * sending.PART), ago=50)
            return data

        monkeypatch.setattr(sending, "_read", read)
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {}
        monkeypatch.setattr(sending, "_read", real)
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/large": b"b" * (2 * sending.PART)}

    def test_a_store_that_is_gone_costs_nothing_but_time(
        self, open_folder: Open, tmp_path: Path, whole: TestStore
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/1/a", b"1")
        whole.proxy.cut()
        with pytest.raises(ObjectStoreError):
            folder.send(folder.scan())
        whole.proxy.mend()
        folder.send(folder.scan())
        assert set(whole.texts(BUCKET)) == {"run/1/a"}

    def test_a_disk_that_is_full_costs_nothing_but_the_note_of_what_is_sent(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, whole: TestStore
    ) -> None:
        write(tmp_path / "out/a", b"1")
        state = FolderState(str(tmp_path / "state"))
        # Each write there fails with ENOSPC (full(4)); it can be read for ever.
        (tmp_path / "state").symlink_to("/dev/full")
        folder = CachedFolder(str(tmp_path / "out"), bucket, "run", state, senders)
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/a": b"1"}
        assert folder.list_unsent(folder.scan()) == {}

    def test_a_file_that_cannot_be_sent_keeps_no_other(
        self, open_folder: Open, tmp_path: Path, whole: TestStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/a", b"1", ago=60)
        write(tmp_path / "out/b", b"2", ago=50)
        real = S3Store.put

        def put(store: S3Store, key: str, data: bytes, *, new: bool = False) -> str:
            if key == "run/a":
                raise ObjectStoreError(StoreTrouble.REFUSED, "no such key may be")
            return real(store, key, data, new=new)

        monkeypatch.setattr(S3Store, "put", put)
        with pytest.raises(ObjectStoreError, match="no such key may be"):
            folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/b": b"2"}

    def test_a_marker_never_comes_after_a_file_that_could_not_be_sent(
        self, open_folder: Open, tmp_path: Path, whole: TestStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/1/a", b"1", ago=60)
        write(tmp_path / "out/1/b", b"2", ago=59)
        write(tmp_path / "out/1/.metadata", b"m", ago=58)
        real = S3Store.put

        def put(store: S3Store, key: str, data: bytes, *, new: bool = False) -> str:
            if key == "run/1/a":
                raise ObjectStoreError(StoreTrouble.REFUSED, "no such key may be")
            return real(store, key, data, new=new)

        monkeypatch.setattr(S3Store, "put", put)
        with pytest.raises(ObjectStoreError):
            folder.send(folder.scan())
        assert set(whole.texts(BUCKET)) == {"run/1/b"}

    def test_a_marker_never_comes_after_a_file_that_changed_on_its_way(
        self, open_folder: Open, tmp_path: Path, whole: TestStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = open_folder()
        write(tmp_path / "out/1/a", b"1", ago=60)
        write(tmp_path / "out/1/.metadata", b"m", ago=58)
        real = sending._read

        def read(fd: int, size: int, offset: int) -> bytes:
            write(tmp_path / "out/1/a", b"changed", ago=59)
            return real(fd, size, offset)

        monkeypatch.setattr(sending, "_read", read)
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {}
        monkeypatch.setattr(sending, "_read", real)
        folder.send(folder.scan())
        assert whole.texts(BUCKET) == {"run/1/a": b"changed", "run/1/.metadata": b"m"}

    def test_names_that_are_no_text_harm_nobody(self, open_folder: Open, tmp_path: Path, whole: TestStore) -> None:
        folder = open_folder()
        write(tmp_path / "out/ä b", b"1")
        with open(os.fsencode(tmp_path) + b"/out/\xff", "wb") as file:
            file.write(b"2")
        os.utime(os.fsencode(tmp_path) + b"/out/\xff", (1, 1))
        with contextlib.suppress(ObjectStoreError):
            folder.send(folder.scan())
        assert whole.texts(BUCKET, "run/ä")["run/ä b"] == b"1"

    def test_a_reader_sees_markers_after_all_they_speak_of(
        self, open_folder: Open, tmp_path: Path, whole: TestStore, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = open_folder()
        for step in (1, 2):
            for part in range(3):
                write(tmp_path / f"out/{step}/part{part}", b"x", ago=60 - step)
            write(tmp_path / f"out/{step}/.metadata", b"m", ago=59.5 - step)
        seen: list[str] = []
        real = S3Store.put

        def put(store: S3Store, key: str, data: bytes, *, new: bool = False) -> str:
            etag = real(store, key, data, new=new)
            seen.append(key)
            return etag

        monkeypatch.setattr(S3Store, "put", put)
        folder.send(folder.scan())
        assert [sorted(seen[:3]), seen[3], sorted(seen[4:7]), seen[7]] == [
            ["run/1/part0", "run/1/part1", "run/1/part2"],
            "run/1/.metadata",
            ["run/2/part0", "run/2/part1", "run/2/part2"],
            "run/2/.metadata",
        ]


class TestSharedFolders:
    """Those that several machines write, of whose files this one remembers what may be old."""

    @pytest.mark.parametrize("name", ["a", "b", "in/c"])
    def test_a_marker_waits_for_what_a_look_did_not_see(
        self, open_folder: Open, tmp_path: Path, whole: TestStore, name: str
    ) -> None:
        folder = open_folder(shared=True)
        write(tmp_path / "out/1/a", b"1", ago=60)
        write(tmp_path / "out/1/.metadata", b"m", ago=50)
        seen = folder.scan()
        write(tmp_path / "out/1" / name, b"more", ago=48)
        folder.send(seen)
        assert "run/1/.metadata" not in whole.texts(BUCKET)
        folder.send(folder.scan())
        assert whole.texts(BUCKET)["run/1/.metadata"] == b"m"
        assert whole.texts(BUCKET)[f"run/1/{name}"] == b"more"

    def test_what_is_written_long_after_a_marker_does_not_keep_it(
        self, open_folder: Open, tmp_path: Path, whole: TestStore
    ) -> None:
        folder = open_folder(shared=True)
        write(tmp_path / "out/1/.metadata", b"m", ago=50)
        seen = folder.scan()
        write(tmp_path / "out/1/events", b"e", ago=40)
        folder.send(seen)
        assert set(whole.texts(BUCKET)) == {"run/1/.metadata"}

    def test_after_the_end_the_server_is_asked_for_each_file(
        self, open_folder: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        write(tmp_path / "out/a", b"1234")
        write(tmp_path / "out/secret", b"12")
        asked: list[str] = []
        real = os.open

        def open_file(path: str, flags: int) -> int:
            asked.append(os.path.basename(path))
            if asked[-1] == "secret":
                raise PermissionError
            return real(path, flags)

        monkeypatch.setattr(os, "open", open_file)
        assert {name: file.size for name, file in open_folder(shared=True).scan(ended=True).items()} == {
            "a": 4,
            "secret": 2,
        }
        assert sorted(asked) == ["a", "secret"]
        open_folder().scan(ended=True)
        open_folder(shared=True).scan()
        assert len(asked) == 2


class TestFetching:
    @pytest.fixture
    def cache(self, tmp_path: Path) -> str:
        (tmp_path / "cache").mkdir()
        return str(tmp_path / "cache")

    def place(self, tmp_path: Path, name: str, cache: str = "") -> FetchPlace:
        state = FolderState(str(tmp_path / f"{name}.jsonl"))
        return FetchPlace(str(tmp_path / name), state, ContentCache(cache) if cache else None)

    def test_a_copy_is_fetched_once_a_node_and_is_for_reading(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str, whole: TestStore
    ) -> None:
        bucket.put("data/a", b"hello")
        bucket.put("data/in/b", b"there")
        bucket.put("database", b"other")
        fetch(bucket, "data", self.place(tmp_path, "one", cache), senders.files, "s")
        assert (tmp_path / "one/a").read_bytes() == b"hello"
        assert (tmp_path / "one/in/b").read_bytes() == b"there"
        assert sorted(path.name for path in (tmp_path / "one").iterdir()) == ["a", "in"]
        assert (tmp_path / "one/a").stat().st_mode & 0o222 == 0
        fetch(bucket, "data", self.place(tmp_path, "two", cache), senders.files, "s")
        assert os.path.samefile(tmp_path / "one/a", tmp_path / "two/a")

    def test_one_object_is_a_file(self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str) -> None:
        bucket.put("data/a", b"hello")
        fetch(bucket, "data/a", self.place(tmp_path, "one", cache), senders.files, "s")
        assert (tmp_path / "one").read_bytes() == b"hello"

    def test_a_cached_file_that_somebody_wrote_to_is_fetched_anew(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str
    ) -> None:
        bucket.put("data/a", b"hello")
        fetch(bucket, "data", self.place(tmp_path, "one", cache), senders.files, "s")
        (tmp_path / "one/a").chmod(0o644)
        (tmp_path / "one/a").write_bytes(b"spoilt")
        fetch(bucket, "data", self.place(tmp_path, "two", cache), senders.files, "s")
        assert (tmp_path / "two/a").read_bytes() == b"hello"

    def test_a_fetch_that_broke_off_goes_on_where_it_was(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str, whole: TestStore
    ) -> None:
        data = os.urandom(3 * MIB)
        etag = bucket.put("data/a", data)
        fetch(bucket, "data", self.place(tmp_path, "one", cache), senders.files, "s")
        kept = next(path for path in Path(cache).iterdir() if not path.suffix)
        kept.unlink()
        kept.with_suffix(".part").write_bytes(data[: 2 * MIB])
        asked: list[tuple[int, str]] = []
        real = S3Store.open

        def open_object(store: S3Store, key: str, offset: int = 0, etag: str = "") -> object:
            asked.append((offset, etag))
            return real(store, key, offset, etag)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(S3Store, "open", open_object)
            fetch(bucket, "data", self.place(tmp_path, "two", cache), senders.files, "s")
        assert asked == [(2 * MIB, etag)]
        assert (tmp_path / "two/a").read_bytes() == data

    def test_content_that_is_not_what_was_sent_is_not_taken(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str
    ) -> None:
        bucket.put("data/a", b"hello")
        fetch(bucket, "data", self.place(tmp_path, "one", cache), senders.files, "s")
        kept = next(path for path in Path(cache).iterdir() if not path.suffix)
        kept.unlink()
        kept.with_suffix(".part").write_bytes(b"HELL")
        with pytest.raises(ObjectStoreError, match="other content"):
            fetch(bucket, "data", self.place(tmp_path, "two", cache), senders.files, "s")
        fetch(bucket, "data", self.place(tmp_path, "two", cache), senders.files, "s")
        assert (tmp_path / "two/a").read_bytes() == b"hello"

    def test_parts_are_checked_too(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str, open_folder: Open
    ) -> None:
        data = os.urandom(2 * sending.PART + 7)
        folder = open_folder()
        write(tmp_path / "out/large", data)
        folder.send(folder.scan())
        fetch(bucket, "run", self.place(tmp_path, "one", cache), senders.files, "s")
        assert (tmp_path / "one/large").read_bytes() == data

    def test_a_folder_that_is_written_to_keeps_what_is_not_sent_yet(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, open_folder: Open
    ) -> None:
        bucket.put("run/published", b"1")
        bucket.put("run/older", b"1")
        (tmp_path / "out").mkdir()
        write(tmp_path / "out/older", b"newer")
        write(tmp_path / "out/own", b"own")
        folder = open_folder()
        fetch(bucket, "run", FetchPlace(folder.path, folder.state), senders.files, "s")
        found = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
        assert found == {"published": b"1", "older": b"newer", "own": b"own"}
        assert set(folder.list_unsent(folder.scan())) == {"older", "own"}
        bucket.put("run/published", b"2")
        bucket.delete("run/older")
        fetch(bucket, "run", FetchPlace(folder.path, folder.state), senders.files, "s")
        assert (tmp_path / "out/published").read_bytes() == b"2"
        assert (tmp_path / "out/older").exists()

    @pytest.mark.parametrize("key", ["data/../../etc", "data//x", "data/./x"])
    def test_names_that_lead_elsewhere_are_refused(
        self, bucket: S3Store, senders: Senders, tmp_path: Path, cache: str, key: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = [next(iter([bucket.find("data/a")]))._replace(key=key)] if bucket.put("data/a", b"") else []
        monkeypatch.setattr(S3Store, "list_objects", lambda store, prefix, level=False: iter(found))
        with pytest.raises(DataRefused, match="no file can have the name"):
            fetch(bucket, "data", self.place(tmp_path, "one", cache), senders.files, "s")

    @pytest.mark.parametrize(("size", "error"), [(1 << 60, DataRefused), (1 << 20, OSError)], ids=["never", "now"])
    def test_what_does_not_fit_is_refused_before_anything_is_fetched(
        self,
        bucket: S3Store,
        senders: Senders,
        tmp_path: Path,
        cache: str,
        monkeypatch: pytest.MonkeyPatch,
        size: int,
        error: type[Exception],
    ) -> None:
        bucket.put("data/a", b"")
        found = [bucket.find("data/a")._replace(size=size)]
        monkeypatch.setattr(S3Store, "list_objects", lambda store, prefix, level=False: iter(found))
        monkeypatch.setattr("overspan.bridge.runtime.data.cache._measure_free", lambda path: 0)
        with pytest.raises(error, match="do not fit"):
            fetch(bucket, "data", self.place(tmp_path, "one", cache), senders.files, "s")
