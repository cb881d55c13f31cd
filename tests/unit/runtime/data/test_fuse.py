"""A folder of a store as a file system: what is seen of it, what is fetched of it, and what writing to it does."""

from __future__ import annotations

import errno
import os
import resource
import struct
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.runtime.core import isolation, storage_mounts
from overspan.bridge.runtime.data.fuse import protocol, server
from overspan.bridge.runtime.data.fuse.blocks import BLOCK, BlockCache, ObjectHandle
from overspan.bridge.runtime.data.fuse.facts import FACTS_SECONDS, PATIENCE, StoreFacts, StoreWaits
from overspan.bridge.runtime.data.fuse.folder import MountedFolder
from overspan.bridge.runtime.data.fuse.nodes import NodeTable
from overspan.bridge.runtime.data.fuse.operations import DiskHandle, FolderOperations
from overspan.bridge.runtime.data.fuse.session import is_killed
from overspan.bridge.runtime.data.fuse.threads import open_pool
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoredObject, StoreTrouble
from overspan.bridge.runtime.data.removals import RemovalNotes


class FakeReader:
    part_size = 0
    etag_is_hash = False

    def __init__(self, stored: StoredObject, data: bytes) -> None:
        self.stored = stored
        self._data = data

    def read(self, size: int) -> bytes:
        part, self._data = self._data[:size], self._data[size:]
        return part

    def close(self) -> None:
        """Nothing is open."""


class FakeStore:
    """Objects in memory, what was asked for, and a failure where there is to be one."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.asked: list[Any] = []
        self.failures: list[ObjectStoreError] = []
        self.breaks = 0
        """So many listings end behind their first name."""

    def put(self, **objects: bytes) -> None:
        self.objects.update({f"run/{name.replace('__', '/')}": data for name, data in objects.items()})

    def _fail(self) -> None:
        if self.failures:
            raise self.failures.pop(0)

    def _describe(self, key: str) -> StoredObject:
        return StoredObject(key, len(self.objects[key]), f"{hash(self.objects[key])}", 5.0)

    def list_objects(self, prefix: str, *, level: bool = False) -> Iterator[StoredObject]:
        self.asked.append(("list", prefix))
        self._fail()
        seen = set()
        for key in sorted(self.objects):
            if key.startswith(prefix):
                rest, slash, _ = key[len(prefix) :].partition("/")
                if not (level and slash):
                    yield self._describe(key)
                elif rest not in seen:
                    seen.add(rest)
                    yield StoredObject(f"{prefix}{rest}/", 0, "")
                if self.breaks:
                    self.breaks -= 1
                    raise ObjectStoreError(StoreTrouble.SILENT, "reset")

    def find(self, key: str) -> StoredObject:
        self.asked.append(("find", key))
        self._fail()
        if key not in self.objects:
            raise ObjectStoreError(StoreTrouble.MISSING, "no such object")
        return self._describe(key)

    def open(self, key: str, offset: int = 0, etag: str = "", size: int = 0) -> FakeReader:
        self.asked.append(("open", key, offset, size))
        self._fail()
        stored = self._describe(key)
        if etag and etag != stored.etag:
            raise ObjectStoreError(StoreTrouble.TAKEN, "another version")
        return FakeReader(stored, self.objects[key][offset : offset + size if size else None])

    def close(self) -> None:
        """No connections."""


class World:
    """A store, a clock and a folder."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.said: list[str] = []
        self.store = FakeStore()
        self.waits = StoreWaits(self.said.append, lambda: self.now, self._sleep)
        self.facts = StoreFacts(self.store, "run", self.waits, lambda: self.now)
        self.files = folder / "mount/files"
        self.files.mkdir(parents=True)
        self.executor = ThreadPoolExecutor(2)
        self.cache = BlockCache(self.store, self.waits, self.executor, 8 * BLOCK)

    def open(self) -> MountedFolder:
        return MountedFolder(str(self.files), self.store, self.facts, self.waits)

    def _sleep(self, seconds: float) -> None:
        self.now += seconds

    def read(self, name: str, *ranges: tuple[int, int]) -> list[bytes]:
        handle = ObjectHandle(self.cache, self.store._describe(f"run/{name}"))
        found = [b"".join(handle.finish(handle.begin(*each), *each)) for each in ranges]
        handle.close()
        return found

    def opened(self) -> list[tuple[int, int]]:
        return [(each[2], each[3]) for each in self.store.asked if each[0] == "open"]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    world = World(tmp_path)
    yield world
    world.executor.shutdown()


def code_of(call: Any, *words: Any) -> int | None:
    with pytest.raises(OSError) as raised:
        call(*words)
    return raised.value.errno


class TestFacts:
    def test_a_name_is_asked_for_once_and_again_when_its_time_is_over(self, world: World) -> None:
        world.store.put(a=b"1", deep__b=b"2")
        for _ in range(2):
            a, deep = world.facts.find("a"), world.facts.find("deep")
            assert a is not None and a.stored.size == 1 and deep is not None and deep.is_folder
        assert world.store.asked == [("find", "run/a"), ("find", "run/deep"), ("list", "run/deep/")]
        del world.store.objects["run/a"]
        world.now += FACTS_SECONDS
        assert world.facts.find("a") is None

    def test_a_folder_of_which_several_names_were_asked_for_is_listed(self, world: World) -> None:
        world.store.put(**{f"f{number}": b"" for number in range(30)})
        assert all(world.facts.find(f"f{number}") for number in range(30))
        assert world.facts.find("none") is None
        assert world.store.asked == [*(("find", f"run/f{number}") for number in range(4)), ("list", "run/")]

    def test_a_store_that_does_not_answer_is_asked_again_and_then_said_once(self, world: World) -> None:
        world.store.put(a=b"1")
        world.store.failures = [ObjectStoreError(StoreTrouble.SILENT, "no answer")] * 3
        assert world.facts.find("a") is not None and world.said == []
        world.store.failures = [ObjectStoreError(StoreTrouble.SILENT, "no answer")] * 1000
        assert code_of(world.facts.find, "b") == errno.EIO
        assert world.now >= PATIENCE[StoreTrouble.SILENT] and code_of(world.facts.find, "b") == errno.EIO
        assert world.said == ["span: the program waits for its storage: no answer", "span: error: no answer"]

    def test_credentials_that_do_not_count_are_no_right_to_read(self, world: World) -> None:
        world.store.failures = [ObjectStoreError(StoreTrouble.DENIED, "denied")] * 1000
        assert code_of(world.facts.find, "a") == errno.EACCES

    def test_a_bucket_that_is_gone_is_said_once_and_is_an_error_to_the_program(self, world: World) -> None:
        def ask(number: int) -> None:
            world.store.failures = [ObjectStoreError(StoreTrouble.MISSING, "no such bucket")] * number

        for look in (world.facts.list_folder, world.facts.list_below):
            ask(1)
            assert code_of(look, "a") == errno.EIO
        ask(2)
        assert code_of(world.facts.find, "b") == errno.EIO
        assert world.said == ["span: error: no such bucket"]

    def test_a_listing_that_breaks_off_in_the_middle_is_asked_for_again(self, world: World) -> None:
        world.store.put(d__a=b"1", d__b=b"2")
        world.store.breaks = 1
        assert [name for name, _ in world.facts.list_below("d")] == ["d/a", "d/b"]


class TestBlocks:
    def test_a_file_that_is_read_from_front_to_back_is_fetched_ahead_by_few_requests(self, world: World) -> None:
        content = os.urandom(20 * BLOCK + 5)
        world.store.put(a=content)
        step = BLOCK // 8
        ranges = [(offset, step) for offset in range(0, len(content), step)]
        assert b"".join(world.read("a", *ranges)) == content
        # No block twice, several at once, never more ahead than half of the memory.
        opened = sorted(world.opened())
        assert sum(size for _, size in opened) == len(content)
        assert len(opened) < 14 and max(size for _, size in opened) <= 4 * BLOCK

    def test_a_read_in_the_middle_fetches_what_it_needs(self, world: World) -> None:
        world.store.put(a=os.urandom(20 * BLOCK))
        (part,) = world.read("a", (10 * BLOCK + 7, 100))
        assert part == world.store.objects["run/a"][10 * BLOCK + 7 :][:100]
        assert world.opened() == [(10 * BLOCK, BLOCK)]

    def test_the_memory_is_bounded(self, world: World) -> None:
        world.store.put(a=os.urandom(30 * BLOCK))
        world.read("a", *((number * BLOCK, 10) for number in range(30)))
        world.executor.submit(lambda: None).result()
        held = [each for each in world.cache._blocks.values() if each.done()]
        assert sum(len(each.result()) for each in held) <= 8 * BLOCK

    def test_reads_that_wait_behind_others_for_a_store_that_hangs_fail_with_them(self, world: World) -> None:
        """However many there are, the last one has an error when its own time is over."""
        world.store.put(a=bytes(100 * BLOCK))
        world.executor.shutdown()
        world.executor = ThreadPoolExecutor(1)
        world.cache = BlockCache(world.store, world.waits, world.executor, 64 * BLOCK)
        world.store.failures = [ObjectStoreError(StoreTrouble.SILENT, "no answer")] * 10_000
        handle = ObjectHandle(world.cache, world.store._describe("run/a"))
        ready = threading.Event()
        world.executor.submit(ready.wait)
        reads = [(offset * BLOCK, handle.begin(offset * BLOCK, 10)) for offset in range(0, 100, 20)]
        ready.set()
        assert [code_of(handle.finish, blocks, offset, 10) for offset, blocks in reads] == [errno.EIO] * 5
        assert world.now < PATIENCE[StoreTrouble.SILENT] + 10
        world.store.failures = []
        assert b"".join(handle.finish(handle.begin(0, 10), 0, 10)) == bytes(10)

    def test_another_version_is_stale_and_a_store_that_fails_is_asked_again_by_the_next_read(
        self, world: World
    ) -> None:
        world.store.put(a=b"1" * 10)
        handle = ObjectHandle(world.cache, world.store._describe("run/a"))
        world.store.put(a=b"2" * 10)
        assert code_of(handle.finish, handle.begin(0, 10), 0, 10) == errno.ESTALE
        handle = ObjectHandle(world.cache, world.store._describe("run/a"))
        world.store.failures = [ObjectStoreError(StoreTrouble.REFUSED, "no")]
        assert code_of(handle.finish, handle.begin(0, 10), 0, 10) == errno.EIO
        assert b"".join(handle.finish(handle.begin(0, 10), 0, 10)) == b"2" * 10
        assert handle.begin(10, 5) == []


class TestFolder:
    def test_what_was_written_hides_what_the_store_has(self, world: World) -> None:
        world.store.put(a=b"store", deep__b=b"x")
        (world.files / "a").write_bytes(b"written, and longer")
        (world.files / "deep").mkdir()
        (world.files / "deep/c").write_bytes(b"")
        (world.files / ".x.overspan-part").write_bytes(b"")
        folder = world.open()
        assert folder.look("a").size == 19
        assert sorted(folder.list_folder("")) == ["a", "deep"]
        assert sorted(folder.list_folder("deep")) == ["b", "c"]
        assert code_of(folder.look, "none") == errno.ENOENT

    def test_a_file_of_the_store_that_is_written_to_is_copied_first_and_an_emptied_one_is_not(
        self, world: World
    ) -> None:
        world.store.put(deep__a=b"store", b=b"store")
        folder = world.open()
        assert folder.open_written("b", os.O_RDONLY) is None
        fd = folder.open_written("deep/a", os.O_RDWR)
        assert fd is not None and os.pread(fd, 10, 0) == b"store"
        os.close(fd)
        fd = folder.open_written("b", os.O_WRONLY | os.O_TRUNC)
        assert fd is not None
        os.close(fd)
        assert {path.name for path in world.files.rglob("*") if path.is_file()} == {"a", "b"}
        assert [each for each in world.store.asked if each[0] == "open"] == [("open", "run/deep/a", 0, 0)]

    def test_what_is_removed_is_noted_and_not_seen_any_more(self, world: World) -> None:
        world.store.put(a=b"1", deep__b=b"2")
        (world.files / "mine").write_bytes(b"")
        folder = world.open()
        folder.remove_file("a")
        folder.remove_file("mine")
        assert code_of(folder.remove_folder, "deep") == errno.ENOTEMPTY
        folder.remove_file("deep/b")
        folder.remove_folder("deep")
        assert folder.list_folder("") == {}
        assert code_of(folder.look, "a") == errno.ENOENT and code_of(folder.remove_file, "a") == errno.ENOENT
        assert sorted(RemovalNotes(str(world.files)).list_names()) == ["a", "deep/b"]
        # The server of another attempt does not see it either, as long as the store has it.
        assert code_of(world.open().look, "a") == errno.ENOENT
        os.close(folder.create("a", os.O_WRONLY, 0o600))
        assert folder.look("a").size == 0

    def test_renames(self, world: World) -> None:
        world.store.put(a=b"store", whole__b=b"1", part__c=b"1", sent__d=b"1")
        (world.files / "sent").mkdir()
        (world.files / "sent/d").write_bytes(b"1")
        folder = world.open()
        folder.rename("a", "new/a", 0)
        assert (world.files / "new/a").read_bytes() == b"store" and code_of(folder.look, "a") == errno.ENOENT
        assert code_of(folder.rename, "new/a", "part/c", 1) == errno.EEXIST
        # mv copies a folder that the store alone has, file by file.
        assert code_of(folder.rename, "whole", "other", 0) == errno.EXDEV
        folder.rename("sent", "moved", 0)
        assert sorted(folder.list_folder("")) == ["moved", "new", "part", "whole"]
        assert sorted(RemovalNotes(str(world.files)).list_names()) == ["a", "sent/d"]

    def test_many_names_of_a_folder_are_removed_by_one_listing(self, world: World) -> None:
        world.store.put(**{f"f{number}": b"" for number in range(30)})
        folder = world.open()
        for name in folder.list_folder(""):
            folder.remove_file(name)
        assert folder.list_folder("") == {} and world.store.asked == [("list", "run/")]


class TestOperations:
    """Requests of the kernel, as far as they are more than calls of the folder."""

    def ask(self, operations: FolderOperations, code: int, body: bytes, node: int = protocol.ROOT) -> bytes:
        return b"".join(operations.answer(protocol.Request(code, 1, node, 1, body)))

    def find(self, operations: FolderOperations, name: bytes) -> int:
        node: int = struct.unpack_from("<Q", self.ask(operations, protocol.LOOKUP, name + b"\0"))[0]
        return node

    def test_what_lies_on_the_disk_waits_for_no_store(self, world: World) -> None:
        world.store.put(stored=b"1")
        (world.files / "written").write_bytes(b"1")
        operations = FolderOperations(world.open(), world.cache)
        nodes = {name: self.find(operations, name) for name in (b"written", b"stored")}
        local = {
            name: [
                operations.is_local(protocol.Request(protocol.LOOKUP, 1, protocol.ROOT, 1, name + b"\0")),
                operations.is_local(protocol.Request(protocol.GETATTR, 1, node, 1, bytes(16))),
                operations.is_local(protocol.Request(protocol.OPEN, 1, node, 1, bytes(8))),
            ]
            for name, node in nodes.items()
        }
        assert local == {b"written": [True] * 3, b"stored": [False] * 3}
        new = struct.pack("<IIII", os.O_WRONLY | os.O_CREAT, 0o644, 0, 0) + b"new\0"
        assert operations.is_local(protocol.Request(protocol.CREATE, 1, protocol.ROOT, 1, new))
        asked = len(world.store.asked)
        self.ask(operations, protocol.CREATE, new)
        assert len(world.store.asked) == asked

    def test_a_file_of_the_store_that_was_removed_while_it_is_open_has_its_attributes(self, world: World) -> None:
        world.store.put(a=b"12345")
        operations = FolderOperations(world.open(), world.cache)
        node = self.find(operations, b"a")
        handle = self.ask(operations, protocol.OPEN, bytes(8), node)[:8]
        self.ask(operations, protocol.UNLINK, b"a\0")
        text = self.ask(operations, protocol.GETATTR, bytes(16), node)
        assert struct.unpack_from("<Q", text, 24)[0] == 5
        self.ask(operations, protocol.RELEASE, handle + bytes(16), node)
        assert code_of(self.ask, operations, protocol.GETATTR, bytes(16), node) == errno.ENOENT

    def test_a_file_that_was_made_for_a_program_that_is_gone_is_closed(self, world: World) -> None:
        operations = FolderOperations(world.open(), world.cache)
        body = struct.pack("<IIII", os.O_WRONLY | os.O_CREAT, 0o644, 0, 0) + b"new\0"
        request = protocol.Request(protocol.CREATE, 1, protocol.ROOT, 1, body)
        reply = operations.answer(request)
        (handle,) = operations._handles.values()
        assert isinstance(handle, DiskHandle)
        operations.undo(request, reply)
        assert code_of(os.fstat, handle.fd) == errno.EBADF


class TestServer:
    def test_its_threads_run_from_the_start(self) -> None:
        before = threading.active_count()
        pool = open_pool(5)
        assert threading.active_count() == before + 5
        assert pool.submit(int).result() == 0 and threading.active_count() == before + 5
        pool.shutdown()

    def test_where_threads_are_short_it_does_not_start(self, monkeypatch: pytest.MonkeyPatch) -> None:
        start, left = threading.Thread.start, [3]

        def refuse(thread: threading.Thread) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise RuntimeError("can't start new thread")
            start(thread)

        before = threading.active_count()
        monkeypatch.setattr(threading.Thread, "start", refuse)
        assert code_of(open_pool, 5) == errno.EAGAIN
        assert threading.active_count() == before

    def test_it_has_as_many_descriptors_as_it_may(self, monkeypatch: pytest.MonkeyPatch) -> None:
        found: list[Any] = []
        monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, 4096))
        monkeypatch.setattr(resource, "setrlimit", lambda *words: found.append(words))
        server.raise_limit()
        assert found == [(resource.RLIMIT_NOFILE, (4096, 4096))]

    def test_a_probe_of_a_node_that_is_short_of_something_is_no_answer(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(number: int) -> None:
            def mount(_: str) -> int:
                raise OSError(number, os.strerror(number))

            monkeypatch.setattr(storage_mounts, "mount_folder", mount)

        monkeypatch.setattr(isolation, "enter_namespaces", lambda: None)
        fail(errno.ENOENT)
        assert storage_mounts.probe_mounts("/") == "there is no /dev/fuse on this node"
        fail(errno.ENOMEM)
        assert code_of(storage_mounts.probe_mounts, "/") == errno.EAGAIN


def test_a_program_of_another_pid_namespace_is_seen_where_its_processes_are(tmp_path: Path) -> None:
    """A pod's server has numbers of processes that are the task's container's."""
    (tmp_path / "1").mkdir()
    status = tmp_path / "1" / "status"
    status.write_text("SigPnd:\t0000000000010000\nShdPnd:\t0000000000000000\n")
    assert not is_killed(1, str(tmp_path))
    status.write_text("SigPnd:\t0000000000000100\n")
    assert is_killed(1, str(tmp_path)) and is_killed(2, str(tmp_path))


class TestNodes:
    def test_a_node_has_one_number_as_long_as_the_kernel_knows_it_and_moves_with_its_folder(self) -> None:
        nodes = NodeTable()
        folder = nodes.look_up(protocol.ROOT, "folder")
        file = nodes.look_up(folder, "file")
        assert nodes.look_up(folder, "file") == file
        nodes.move(protocol.ROOT, "folder", protocol.ROOT, "moved")
        assert nodes.name_of(file) == "moved/file"
        nodes.forget(folder, 1)
        assert nodes.name_of(file) == "moved/file"
        nodes.remove(folder, "file")
        assert code_of(nodes.name_of, file) == errno.ENOENT
        nodes.forget(file, 2)
        assert code_of(nodes.name_of, file) == errno.ESTALE


class TestProtocol:
    def test_requests_and_answers_have_the_kernel_s_sizes(self) -> None:
        body = b"name\0"
        head = struct.pack("<IIQQIIII", 40 + len(body), protocol.LOOKUP, 7, 1, 0, 0, 99, 0)
        request = protocol.parse_request(memoryview(head + body))
        assert (request.opcode, request.unique, request.node, request.pid) == (protocol.LOOKUP, 7, 1, 99)
        assert request.names() == ["name"]
        some = protocol.Attributes(5, 0o100644, 1, 2, 1_500_000_000)
        assert len(protocol.encode_attributes(2, some)) == 104 and len(protocol.encode_entry(2, some)) == 128
        row = protocol.DirectoryEntry("abc", 3, some)
        assert len(protocol.encode_row(row, 1, plus=False)) == 32 and len(protocol.encode_row(row, 1, plus=True)) == 160
        opening = protocol.Request(protocol.INIT, 1, 0, 0, struct.pack("<IIII", 7, 45, 131072, 0xFFFFFFFF))
        assert len(protocol.encode_init(opening)) == 64

    def test_a_listing_goes_on_where_the_last_answer_ended(self, world: World) -> None:
        world.store.put(**{f"f{number:03}": b"" for number in range(100)})
        operations = FolderOperations(world.open(), world.cache)

        def ask(code: int, body: bytes) -> bytes:
            return b"".join(operations.answer(protocol.Request(code, 1, protocol.ROOT, 1, body)))

        handle = struct.unpack_from("<Q", ask(protocol.OPENDIR, bytes(8)))[0]
        names, offset = [], 0
        while text := ask(protocol.READDIR, struct.pack("<QQI", handle, offset, 500)):
            while text:
                _, offset, length, _ = struct.unpack_from("<QQII", text)
                names.append(text[24 : 24 + length].decode())
                text = text[24 + (length + 7) // 8 * 8 :]
        assert names == [".", "..", *(f"f{number:03}" for number in range(100))]
