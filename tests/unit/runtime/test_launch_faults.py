"""What a supervisor does when something of one launch goes wrong at an odd moment."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import NoReturn

import pytest

from overspan.bridge.model.events import Event, NodeEnded, NodeStarted
from overspan.bridge.model.job import Attempt, Job, NodeRun, new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.model.storage import MountMode, StorageMount
from overspan.bridge.runtime.core import node_records, shim_control
from overspan.bridge.runtime.core.gated_child import STORAGE_STEP, StartError, add_failure
from overspan.bridge.runtime.core.isolation import Isolation
from overspan.bridge.runtime.core.journal import Journal
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.core.shim import NodeLaunch
from overspan.bridge.runtime.core.shim_control import NodeStatus, Shim
from overspan.bridge.runtime.core.streams import NodeKey
from overspan.bridge.runtime.data.requests import FETCH, MOUNT, DataAnswer, DataRequest, MoverFiles
from overspan.bridge.runtime.local import supervisor as supervisor_module
from overspan.bridge.runtime.local.nodes import LocalNodeRuns, NodeRunSettings
from overspan.bridge.runtime.local.supervisor import Supervisor

KEY = NodeKey("main", 0, 0, 0)


def make_job() -> Job:
    """A job whose only attempt has been decided."""
    job = new_job(7, JobSpec("main", (TaskSpec("main", run="true"),)), 1.0)
    attempt = Attempt(0, State.CONFIGURING, 1.0, (NodeRun(0),))
    return replace(job, tasks=(replace(job.tasks[0], attempts=(attempt,)),))


class Watched:
    """Node runs whose shims are made up."""

    def __init__(self, folder: Path) -> None:
        self.shims: list[Shim] = []
        self.trouble: Exception | None = None
        self.nodes = LocalNodeRuns(
            NodeRunSettings(RunDirectory(str(folder), 0), "local", Isolation(), {}, self.spawn, self.shims.append)
        )

    def spawn(self, launch: NodeLaunch) -> Shim:
        if self.trouble is not None:
            raise self.trouble
        return Shim(launch.directory, launch.key, 0, None)


def test_a_node_whose_lock_is_still_held_is_not_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched(tmp_path)
    assert watched.nodes.start(make_job(), KEY, 1.0) == []
    shim = watched.shims[0]
    fd = os.open(os.devnull, os.O_RDONLY)
    found = [NodeStatus(shim_control.STARTING, shim._replace(pidfd=fd)), NodeStatus(shim_control.UNSTARTED)]
    monkeypatch.setattr(shim_control, "release", lambda shim: found.pop(0))
    assert watched.nodes.end(shim, 2.0) == []
    assert watched.shims[1:] == [shim]
    with pytest.raises(OSError):
        os.fstat(fd)
    assert [type(event) for event in watched.nodes.end(watched.shims[1], 3.0)] == [NodeEnded]


def test_a_shim_that_is_held_twice_is_released_twice(tmp_path: Path) -> None:
    fd = os.open(os.devnull, os.O_RDONLY)
    assert Watched(tmp_path).nodes.end(Shim(str(tmp_path / "nodes"), str(KEY), 0, fd), 2.0) == []
    with pytest.raises(OSError):
        os.fstat(fd)


def test_a_launch_that_cannot_be_expressed_is_a_failed_start(tmp_path: Path) -> None:
    watched = Watched(tmp_path)
    watched.trouble = ValueError("embedded null byte")
    (event,) = watched.nodes.start(make_job(), KEY, 1.0)
    assert isinstance(event, NodeEnded) and event.cause == "launch" and "null byte" in event.detail


def test_a_journal_that_cannot_be_read_keeps_no_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "journal.0.jsonl"
    path.write_text("no json\n")
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(ValueError):
        Journal(str(path), 7, 0)
    assert len(os.listdir("/proc/self/fd")) == before


class Mounting:
    """A node run whose probe could mount its storage, and whose start could not."""

    def __init__(self, folder: Path, number: int) -> None:
        mount = StorageMount("./out", "s3://lab/run", MountMode.MOUNT_CACHED, "s3", read_through=True)
        attempt = Attempt(0, State.CONFIGURING, 1.0, (NodeRun(0),))
        job = new_job(7, JobSpec("main", (TaskSpec("main", run="true", storage=(mount,)),)), 1.0)
        self.job = replace(job, tasks=(replace(job.tasks[0], attempts=(attempt,)),))
        self.directory = RunDirectory(str(folder / "runs/7"), 0)
        (folder / "runs/7").mkdir(parents=True)
        self.number = number
        self.launches: list[NodeLaunch] = []
        self.mover = MoverFiles(self.directory)
        self.shims: list[Shim] = []
        self.nodes = self.open()

    def open(self) -> LocalNodeRuns:
        """As a supervisor opens it."""
        settings = NodeRunSettings(self.directory, "local", Isolation(), {}, self.spawn, self.shims.append)
        nodes = LocalNodeRuns(settings)
        nodes._data._probe = lambda folder: ""
        return nodes

    def spawn(self, launch: NodeLaunch) -> Shim:
        if launch.key != str(KEY):
            return Shim(launch.directory, launch.key, os.getpid(), None)
        os.close(node_records.claim(launch.directory, launch.key))
        self.launches.append(launch)
        if launch.mounted:
            error = StartError(STORAGE_STEP, "cannot mount the task's storage: no device", self.number)
            record = add_failure(node_records.make_record(1, 0, True)._replace(ended_at=2.0), error)
            os.close(node_records.begin_record(launch.directory, launch.key, record))
            node_records.close_record(launch.directory, launch.key)
        return Shim(launch.directory, launch.key, 0, None)

    def answer(self, kind: str) -> list[Event]:
        """The mover has brought what it was asked for."""
        assert DataRequest(kind, "main", 0) in self.mover.read_requests()
        self.mover.answer(DataAnswer(DataRequest(kind, "main", 0)))
        return self.nodes.collect((), 2.0)


@pytest.mark.parametrize("restarted", [False, True])
def test_a_mount_that_fails_after_a_good_probe_becomes_a_copy(tmp_path: Path, restarted: bool) -> None:
    """Also where the supervisor was killed between the failure and the copy."""
    scene = Mounting(tmp_path, errno.ENOENT)
    assert scene.nodes.start(scene.job, KEY, 1.0) == [] and scene.answer(MOUNT) == []
    assert scene.launches[0].mounted
    if restarted:
        scene.nodes = scene.open()
        assert scene.nodes.adopt(scene.job, KEY, 2.0) == []
    else:
        assert scene.nodes.collect(scene.shims[-1:], 2.0) == []
    assert scene.answer(FETCH) == []
    assert not scene.launches[1].mounted and not scene.launches[1].server
    assert scene.launches[1].note.endswith("before the start: a node cannot mount the task's storage: no device")
    record = node_records.make_record(os.getpid(), os.getpid(), True)
    os.close(node_records.begin_record(scene.launches[1].directory, str(KEY), record))
    (started,) = scene.nodes.collect((), 3.0)
    assert isinstance(started, NodeStarted)
    assert started.storage == "copied: a node cannot mount the task's storage: no device"


def test_a_mount_for_which_the_machine_is_short_of_something_is_tried_again(tmp_path: Path) -> None:
    scene = Mounting(tmp_path, errno.EMFILE)
    scene.nodes.start(scene.job, KEY, 1.0)
    scene.answer(MOUNT)
    (event,) = scene.nodes.collect(scene.shims[-1:], 2.0)
    assert isinstance(event, NodeEnded) and event.cause == "node" and "no device" in event.detail


def test_a_mount_that_fails_while_its_job_is_ended_is_no_reason_to_start(tmp_path: Path) -> None:
    scene = Mounting(tmp_path, errno.ENOENT)
    scene.nodes.start(scene.job, KEY, 1.0)
    scene.answer(MOUNT)
    scene.nodes.signal("main", 0, signal.SIGTERM)
    (event,) = scene.nodes.collect(scene.shims[-1:], 2.0)
    assert isinstance(event, NodeEnded) and event.cause == "launch" and len(scene.launches) == 1


class _NoForker:
    def spawn(self, launch: NodeLaunch) -> Shim:
        raise AssertionError(launch)


@pytest.mark.parametrize(("error", "said"), [(OSError(errno.EMFILE, "too many"), False), (TypeError("odd"), True)])
def test_what_is_wrong_with_one_launch_does_not_end_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception, said: bool
) -> None:
    def refuse(*words: object) -> NoReturn:
        raise error

    monkeypatch.setattr(supervisor_module, "SupervisedLaunch", refuse)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    try:
        host = Supervisor(str(tmp_path), lock, _NoForker())  # type: ignore[arg-type]
        host._open(("/runs/7", 0), 1.0)
        # What stays wrong is left to the daemon in the end (tests of damaged runs).
        assert host._postponed == [("/runs/7", 0)]
        assert (tmp_path / "log").exists() is said
        assert not said or "odd" in (tmp_path / "log").read_text()
    finally:
        os.close(lock)
