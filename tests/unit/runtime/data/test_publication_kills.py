"""What a reader of the store sees of a folder whose uploader is killed at any request, while its writer goes on."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.runtime.data import publication
from overspan.bridge.runtime.data.cached_folder import CachedFolder, Senders
from overspan.bridge.runtime.data.folder_state import FolderState
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble

SMALL = 400
"""Bytes; what is larger has its turn alone."""
SEEDS = range(6)
_KILLS = 2
"""Requests of a seed at which the uploader is killed. All of them were played with 12 seeds."""


class Killed(BaseException):
    """The uploader is no more."""


class ShuffledThreads(Executor):
    """Runs what waits in any order, when somebody asks for the first of it."""

    def __init__(self, choice: random.Random, *, single: bool = False) -> None:
        self._choice = choice
        self._single = single
        """Whether only what is asked for runs."""
        self._waiting: list[Callable[[], None]] = []

    def submit(self, fn: Callable[..., Any], /, *args: Any, **words: Any) -> Future[Any]:
        future = LateFuture()

        def run() -> None:
            if not future.done() and future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **words))
                except BaseException as error:
                    future.set_exception(error)

        future.before = run if self._single else self._run_all
        self._waiting.append(run)
        return future

    def _run_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._choice.shuffle(waiting)
        for run in waiting:
            run()


class LateFuture(Future[Any]):
    """Has things run when its own end is asked for."""

    before: Callable[[], None]

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.before()
        return super().exception(timeout)


class Writer:
    """A training that writes files of a series, checkpoints with a marker, large files, and a pointer to all of them.

    Each file says which others a reader has to find where it finds this one.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._choice = random.Random(seed)
        self._acts = [
            *(self._write_series, self._write_pointer) * 3,
            self._write_checkpoint,
            self._write_large,
        ]
        self._number = 0
        self.written: dict[str, float] = {}
        self.now = 1_000_000.0

    def act(self) -> None:
        """Write something more, and let time pass."""
        self._choice.choice(self._acts)()
        self.now += self._choice.choice([0.0, 0.0, 0.1, 1.5])

    def _write(self, name: str, promised: list[str], size: int = 0) -> None:
        path = self._folder / name
        path.parent.mkdir(exist_ok=True)
        self.now += 0.01
        path.write_text(json.dumps([self._count(), promised]).ljust(size))
        os.utime(path, ns=(int(self.now * 1e9), int(self.now * 1e9)))
        self.written[name] = self.now

    def _count(self) -> int:
        self._number += 1
        return self._number

    def _write_series(self) -> None:
        for _ in range(self._choice.randint(1, 6)):
            earlier = [name for name, at in self.written.items() if self.now - at > 1.1 and "part" in name]
            self._write(f"part/{self._count():04}", earlier[-3:])

    def _write_checkpoint(self) -> None:
        step = f"step_{self._count()}"
        shards = [f"{step}/{letter}" for letter in "abc"]
        for shard in shards:
            self._write(shard, [])
        self._write(f"{step}/.metadata", shards)

    def _write_pointer(self) -> None:
        self._write("best", [name for name in self.written if "part" in name or "large" in name][-6:])

    def _write_large(self) -> None:
        self._write(f"large_{self._count()}", [name for name in self.written if "large" in name][-6:], SMALL + 1)


class WatchedStore:
    """A store in memory: each request checks what a reader then sees, has the writer go on, or is the last one."""

    def __init__(self, writer: Writer, acts: int, kill_at: int, late: bool) -> None:
        self.objects: dict[str, str] = {}
        self.requests = 0
        self.killed = False
        self._writer = writer
        self._acts = acts
        self._kill_at = kill_at
        self._late = late
        """Whether the last request is carried out, though nobody hears of it."""

    def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        self.requests += 1
        last = self.requests == self._kill_at
        self.killed = self.killed or last
        if self.killed and not (last and self._late):
            raise Killed
        self.objects[key] = data.decode()
        missing = [name for name in json.loads(data)[1] if name not in self.objects]
        assert not missing, f"{key} is there without {missing}"
        if self.killed:
            raise Killed
        if self._acts:
            self._acts -= 1
            self._writer.act()
        return "etag"


def play(top: Path, seed: int, kill_at: int = 0, *, late: bool = False) -> WatchedStore:
    """Have a folder sent until all of it is there."""
    folder = top / "out"
    folder.mkdir(parents=True)
    writer = Writer(folder, seed)
    store = WatchedStore(writer, 8, kill_at, late)
    for _ in range(5):
        writer.act()
    threads = ShuffledThreads(random.Random(seed))
    while True:
        state = FolderState(str(top / "sent.jsonl"))
        cached: Any = CachedFolder
        uploader = cached(str(folder), store, "", state, Senders(threads, threads, threads), clock=lambda: writer.now)
        store.killed = False
        try:
            while uploader.list_unsent(uploader.scan()):
                writer.now += 0.5
                uploader.send(uploader.scan())
            break
        except Killed:
            continue
    there = {path.relative_to(folder).as_posix(): path.read_text() for path in folder.glob("**/*") if path.is_file()}
    assert store.objects == there
    return store


@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_at_any_request_shows_no_reader_a_file_without_those_it_speaks_of(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publication, "SMALL", SMALL)
    requests = play(tmp_path / "whole", seed).requests
    for number in random.Random(seed).sample(range(1, requests + 1), _KILLS):
        for late in (False, True):
            play(tmp_path / f"{number}{late}", seed, number, late=late)


def test_a_store_that_refuses_is_asked_for_no_more_of_a_series(tmp_path: Path) -> None:
    asked = []

    class DeniedStore:
        def put(self, key: str, data: bytes) -> str:
            asked.append(key)
            raise ObjectStoreError(StoreTrouble.DENIED, "no")

    for number in range(100):
        (tmp_path / f"{number:02}").write_text("1")
        os.utime(tmp_path / f"{number:02}", (1000, 1000))
    cached: Any = CachedFolder
    state = FolderState(str(tmp_path.parent / "sent.jsonl"))
    threads = ShuffledThreads(random.Random(0), single=True)
    folder = cached(str(tmp_path), DeniedStore(), "", state, Senders(threads, threads, threads))
    with pytest.raises(ObjectStoreError):
        folder.send(folder.scan())
    assert asked == ["00"]


class PickyStore:
    """A store that refuses one file."""

    def __init__(self, refused: str) -> None:
        self.refused = refused
        self.keys: list[str] = []

    def put(self, key: str, data: bytes, *, new: bool = False) -> str:
        if key == self.refused:
            raise ObjectStoreError(StoreTrouble.REFUSED, "no")
        self.keys.append(key)
        return "etag"


def open_series(top: Path, store: object) -> CachedFolder:
    """A folder with a series of four files, and one that comes after it."""
    folder = top / "out"
    folder.mkdir()
    for number, name in enumerate(["0", "1", "2", "3", "best"]):
        (folder / name).write_text(name)
        os.utime(folder / name, (1000, 1000 + number / 100))
    cached: Any = CachedFolder
    threads = ShuffledThreads(random.Random(0))
    senders = Senders(threads, threads, threads)
    made: CachedFolder = cached(str(folder), store, "", FolderState(str(top / "sent.jsonl")), senders)
    return made


def test_the_last_of_a_series_waits_for_one_that_the_store_refuses(tmp_path: Path) -> None:
    store = PickyStore("1")
    folder = open_series(tmp_path, store)
    for _ in range(2):
        with pytest.raises(ObjectStoreError):
            folder.send(folder.scan())
        assert sorted(store.keys) == ["0", "2", "best"]
    store.refused = ""
    folder.send(folder.scan())
    assert store.keys[-2:] == ["1", "3"]


def test_the_last_of_a_series_waits_for_one_that_has_changed(tmp_path: Path) -> None:
    store = PickyStore("")
    folder = open_series(tmp_path, store)
    seen = folder.scan()
    os.utime(tmp_path / "out/1", (2000, 2000))
    folder.send(seen)
    assert sorted(store.keys) == ["0", "2", "best"]
    folder.send(folder.scan())
    assert store.keys[-2:] == ["3", "1"]
