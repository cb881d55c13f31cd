"""Node runs wait for the data of their task's storage; the mover is what answers its requests."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import pytest

from overspan.bridge.model.causes import Cause
from overspan.bridge.model.events import Event, NodeEnded
from overspan.bridge.model.job import Job, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.data.moved_data import MovedData
from overspan.bridge.runtime.data.requests import ABANDON, FETCH, MOUNT, DataAnswer, DataRequest, MoverFiles

KEY = NodeKey("a", 0, 0, 0)
PLAIN = NodeKey("b", 0, 0, 0)


class FakeProcess:
    """A mover's process, as often as it is started."""

    def __init__(self) -> None:
        self.starts: list[Sequence[str]] = []
        self.alive = False

    def lives(self) -> bool:
        return self.alive

    def start(self, argv: Sequence[str], log: str) -> None:
        self.starts.append(argv)
        self.alive = True

    def kill(self) -> None:
        self.alive = False


class World:
    """A launch with the requests that its mover gets."""

    def __init__(self, folder: Path, mode: MountMode = MountMode.MOUNT_CACHED, trouble: str = "") -> None:
        directory = RunDirectory(str(folder), 0)
        self.process = FakeProcess()
        self.data = MovedData(directory, str(folder), self.process, lambda _: trouble)
        self.mover = MoverFiles(directory)
        self.begun: list[NodeKey] = []
        written = MountMode.MOUNT_CACHED if mode is MountMode.MOUNT else mode
        mount = StorageMount("./out", "s3://lab/run", written, "s3", read_through=mode is MountMode.MOUNT)
        tasks = (TaskSpec("a", run="x", storage=(mount,)), TaskSpec("b", run="x"))
        self.job: Job = new_job(7, JobSpec("j", tasks, group=True), 1.0)

    def begin(self, job: Job, key: NodeKey, now: float) -> list[Event]:
        self.begun.append(key)
        return []

    def start(self, key: NodeKey) -> list[Event]:
        return self.data.start(self.job, key, self.begin, 1.0)

    def collect(self, now: float) -> list[NodeEnded]:
        return [event for event in self.data.collect(self.begin, now) if isinstance(event, NodeEnded)]


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def test_a_task_without_storage_begins_at_once_and_starts_no_mover(world: World) -> None:
    assert world.start(PLAIN) == []
    assert world.begun == [PLAIN] and world.process.starts == []
    assert world.data.end(2.0)


def test_a_node_run_begins_when_its_data_has_come(world: World) -> None:
    assert world.start(KEY) == []
    assert world.begun == [] and len(world.process.starts) == 1
    assert world.mover.read_requests() == [DataRequest(FETCH, "a", 0)]
    assert world.data.wake_at is not None
    assert world.collect(2.0) == [] and world.begun == []
    world.mover.answer(DataAnswer(DataRequest(FETCH, "a", 0)))
    assert world.collect(3.0) == [] and world.begun == [KEY]
    assert world.collect(4.0) == [] and world.begun == [KEY]


@pytest.mark.parametrize(("passes", "cause"), [(True, Cause.BOOT), (False, Cause.SETUP)])
def test_what_cannot_be_fetched_ends_the_node_run_before_its_start(world: World, passes: bool, cause: Cause) -> None:
    world.start(KEY)
    world.mover.answer(DataAnswer(DataRequest(FETCH, "a", 0), "no such bucket", 0, passes))
    (ended,) = world.collect(2.0)
    assert (ended.cause, ended.detail) == (cause.value, "no such bucket")
    assert world.begun == []


def test_an_attempt_that_is_ended_while_it_waits_is_reported_at_once(world: World) -> None:
    world.start(KEY)
    world.mover.read_requests()
    world.data.stop("a", 1)
    assert world.mover.read_requests() == []
    world.data.stop("a", 0)
    assert world.mover.read_requests() == [DataRequest(ABANDON, "a", 0)]
    assert world.data.wake_at == 0.0
    (ended,) = world.collect(2.0)
    assert ended.signal == signal.SIGTERM
    world.mover.answer(DataAnswer(DataRequest(FETCH, "a", 0)))
    assert world.collect(3.0) == [] and world.begun == []


def test_a_mover_that_was_killed_is_started_again_but_not_in_a_loop(world: World) -> None:
    world.start(KEY)
    world.process.alive = False
    world.collect(1.5)
    assert len(world.process.starts) == 1
    world.collect(2.5)
    assert len(world.process.starts) == 2


def test_where_nothing_can_be_asked_the_node_run_could_not_be_started(world: World, tmp_path: Path) -> None:
    (tmp_path / "data.0").write_text("in the way")
    (ended,) = world.start(KEY)
    assert isinstance(ended, NodeEnded) and "cannot start" in ended.detail


class TestMounts:
    def test_where_the_node_can_mount_nothing_is_brought(self, tmp_path: Path) -> None:
        world = World(tmp_path, MountMode.MOUNT)
        world.start(KEY)
        assert world.mover.read_requests() == [DataRequest(MOUNT, "a", 0)]
        mounts = world.data.mount(world.job, "a", 0)
        assert mounts.folders == (world.data.locate(world.job, "a")["./out"],)
        assert mounts.server[-3:-1] == ("fuse", str(tmp_path))
        assert mounts.note == "s3://lab/run is read through the store" and mounts.outcome == "mounted"

    def test_where_it_cannot_all_is_brought_and_the_task_is_told_why(self, tmp_path: Path) -> None:
        world = World(tmp_path, MountMode.MOUNT, "there is no /dev/fuse")
        world.start(KEY)
        assert world.mover.read_requests() == [DataRequest(FETCH, "a", 0)]
        mounts = world.data.mount(world.job, "a", 0)
        assert (mounts.server, mounts.folders) == ((), ())
        assert mounts.note.endswith("was brought here whole before the start: there is no /dev/fuse")
        assert mounts.outcome == "copied: there is no /dev/fuse"

    def test_a_node_that_could_not_mount_what_the_first_one_could_gets_a_copy(self, tmp_path: Path) -> None:
        world = World(tmp_path, MountMode.MOUNT)
        world.start(KEY)
        world.mover.answer(DataAnswer(DataRequest(MOUNT, "a", 0)))
        world.collect(2.0)
        world.mover.read_requests()
        world.data.copy(world.job, KEY, "cannot mount it: no device")
        world.start(KEY)
        assert world.mover.read_requests() == [DataRequest(FETCH, "a", 0)]
        world.mover.answer(DataAnswer(DataRequest(FETCH, "a", 0)))
        assert world.collect(3.0) == [] and world.begun == [KEY, KEY]
        assert "before the start: a node cannot mount it: no device" in world.data.mount(world.job, "a", 0).note
        assert world.data.mount(world.job, "a", 1).folders

    def test_what_is_only_cached_is_never_mounted(self, world: World) -> None:
        assert world.data.mount(world.job, "a", 0) == world.data.mount(world.job, "b", 0)
        assert world.data.mount(world.job, "a", 0).folders == ()
