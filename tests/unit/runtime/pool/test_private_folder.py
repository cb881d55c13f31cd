"""The private folder of a worker: where it is, and what becomes of those that killed workers have left."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from overspan.bridge.runtime.pool import private_folder
from overspan.bridge.runtime.pool.private_folder import PrivateFolder, has_room, sweep


@pytest.fixture(autouse=True)
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for what is not in memory."""
    folder = tmp_path / "disk"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(private_folder, "LEAST_BYTES", 1)
    return folder


@pytest.fixture
def memory(tmp_path: Path) -> Path:
    folder = tmp_path / "memory"
    folder.mkdir()
    return folder


def test_each_launch_has_a_new_folder_and_all_are_removed(memory: Path) -> None:
    private = PrivateFolder(str(memory))
    first, second = private.make("7.0"), private.make("7.1")
    assert os.path.dirname(first) == os.path.dirname(second) and os.stat(first).st_mode & 0o777 == 0o700
    Path(first, "plan").write_text("secret")
    assert os.listdir(private.make("7.0")) == []
    private.remove()
    assert os.listdir(memory) == []


def test_a_launch_goes_to_the_disk_while_there_is_no_room_in_memory(
    memory: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = PrivateFolder(str(memory))
    assert private.make("1.0").startswith(str(memory))
    monkeypatch.setattr(private_folder, "LEAST_BYTES", 1 << 62)
    assert private.make("2.0").startswith(str(disk))
    private.remove()
    assert os.listdir(memory) == os.listdir(disk) == []
    assert not has_room(str(memory / "missing"))


def test_what_a_killed_worker_left_is_removed_and_what_a_living_one_has_is_not(memory: Path) -> None:
    living, killed = PrivateFolder(str(memory)), PrivateFolder(str(memory))
    kept, left = living.make("1.0"), killed.make("2.0")
    for _, lock in killed._folders.values():
        os.close(lock)
    nobody = memory / f"span-pool-{os.uname().nodename}-of_nobody"
    nobody.mkdir()
    sweep(str(memory))
    assert os.path.isdir(kept) and not os.path.exists(left)
    assert nobody.is_dir()
    living.remove()


def test_the_next_worker_removes_it(memory: Path) -> None:
    killed = PrivateFolder(str(memory))
    left = killed.make("2.0")
    for _, lock in killed._folders.values():
        os.close(lock)
    other = PrivateFolder(str(memory))
    other.make("3.0")
    assert not os.path.exists(left)
    other.remove()


@pytest.mark.parametrize(("one", "other"), [("n1", "n2"), ("n1", "n1-2"), ("n1-2", "n1"), ("n.1", "n/1")])
def test_what_another_node_has_on_the_same_disk_stays(
    one: str, other: str, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def work_on(node: str) -> PrivateFolder:
        monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(nodename=node))
        return PrivateFolder(str(memory))

    there = work_on(one)
    kept = there.make("1.0")
    for _, lock in there._folders.values():
        # Its lock is there, and nothing here shows it.
        fcntl.flock(lock, fcntl.LOCK_UN)
    here = work_on(other)
    here.make("2.0")
    assert os.path.isdir(kept)
    work_on(one).make("3.0")
    assert not os.path.exists(kept)


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK])
def test_a_disk_without_locks_has_a_folder_that_its_worker_alone_removes(
    number: int, memory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    private, other = PrivateFolder(str(memory)), PrivateFolder(str(memory))
    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", fail)
        kept = private.make("1.0")
    other.make("2.0")
    assert os.path.isdir(kept)
    private.remove()
    other.remove()
    assert os.listdir(memory) == []


def test_a_program_without_a_name_gets_one_for_as_long_as_the_worker_lives(
    memory: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private = PrivateFolder(str(memory))
    with tempfile.TemporaryFile() as file:
        file.write(b"program")
        file.flush()
        monkeypatch.setattr(sys, "argv", [f"/proc/self/fd/{file.fileno()}", "worker"])
        private.keep_program()
    kept = Path(sys.argv[0])
    assert kept.read_bytes() == b"program" and kept.suffix == ".pyz" and kept.is_relative_to(disk)
    private.keep_program()
    assert sys.argv[0] == str(kept)
    private.remove()
    assert os.listdir(disk) == []
