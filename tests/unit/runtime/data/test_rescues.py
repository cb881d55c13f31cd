"""The rescue of what a job has left: by one process at a time."""

from __future__ import annotations

import errno
import fcntl
import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from overspan.bridge.model.storage import StoreAccess
from overspan.bridge.runtime.data import rescue
from overspan.bridge.runtime.data.cached_folder import list_files
from overspan.bridge.runtime.data.object_store import ObjectStoreError, StoreTrouble
from overspan.bridge.runtime.data.rescue import RescuedData, rescue_job

STORES = {"s3": StoreAccess("s3", "http://127.0.0.1:9")}


@pytest.fixture
def left(tmp_path: Path) -> Path:
    """The folder of a job that has left data."""
    return leave(tmp_path).parent


def leave(root: Path) -> Path:
    """A folder of job 7 below a root, for a store's."""
    folder = root / "data/7/0123"
    (folder / "files").mkdir(parents=True)
    facts = {"url": "s3://lab/run", "mode": "MOUNT_CACHED", "store": "s3", "markers": []}
    (folder / "mount.json").write_text(json.dumps(facts))
    return folder


def test_what_another_process_sends_is_refused_until_that_has_ended(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[str] = []

    def send(folder: Any, store: object) -> RescuedData:
        sent.append(folder.url.key)
        with pytest.raises(OSError, match=f"the data of job 7 is being sent by another rescue.*{os.getpid()} on "):
            rescue_job(str(tmp_path), 7, STORES)
        folder.remove()
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)
    assert sent == ["run"] and not left.exists()
    assert rescue_job(str(tmp_path), 7, STORES) is None


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EROFS])
def test_a_disk_without_room_for_the_lock_has_one_rescue_at_a_time_too(
    number: int, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.open

    def open_full(path: str, flags: int, mode: int = 0o777) -> int:
        if flags & os.O_CREAT:
            raise OSError(number, os.strerror(number), path)
        return real(path, flags, mode)

    def send(folder: Any, store: object) -> RescuedData:
        # The first folder that was sent has made room.
        monkeypatch.setattr(os, "open", real)
        with pytest.raises(OSError, match="the data of job 7 is being sent by another rescue"):
            rescue_job(str(tmp_path), 7, STORES)
        folder.remove()
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    monkeypatch.setattr(os, "open", open_full)
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)
    assert not left.exists()


@pytest.mark.parametrize("name", ["ftruncate", "pwrite", "unlink"])
def test_a_lock_that_cannot_be_written_or_removed_stops_no_rescue(
    name: str, left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(rescue, "rescue_folder", lambda folder, store: RescuedData(1, 2))
    monkeypatch.setattr(os, name, fail)
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)


def test_a_file_system_without_locks_stops_no_rescue(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(rescue, "rescue_folder", lambda folder, store: folder.remove() or RescuedData(1, 2))
    monkeypatch.setattr(fcntl, "flock", fail)
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)
    assert not left.exists()


def test_a_lock_that_a_dead_node_has_left_is_named(left: Path, tmp_path: Path) -> None:
    (left / "rescue.lock").write_text("process 4 on gone\n")
    with open(left / "rescue.lock") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(OSError, match=rf"\(process 4 on gone\).*; if its node is gone, remove {left}/rescue.lock"):
            rescue_job(str(tmp_path), 7, STORES)


def test_one_that_was_killed_keeps_nobody(left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (left / "rescue.lock").write_text("process 4 on gone\n")
    monkeypatch.setattr(rescue, "rescue_folder", lambda folder, store: folder.remove() or RescuedData(1, 2))
    assert rescue_job(str(tmp_path), 7, STORES) == RescuedData(1, 2)
    assert not left.exists()


def test_one_that_ends_between_two_steps_of_the_next_is_said(
    left: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = fcntl.flock

    def lock(fd: int, kind: int) -> None:
        (left / "rescue.lock").unlink()
        real(fd, kind)

    monkeypatch.setattr(fcntl, "flock", lock)
    with pytest.raises(OSError, match="give the command again"):
        rescue_job(str(tmp_path), 7, STORES)


def test_the_folders_of_pods_are_sent_newest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Of one launch the last write tells, not the names nor what a rescue has written beside the data.
    for pod, written in (("2/one", 1), ("10/one", 3), ("10/two", 2), ("9/one", 4)):
        folder = leave(tmp_path / "inst-7" / pod)
        (folder / "files/step_1").write_text("x")
        os.utime(folder / "files/step_1", (written, written))
    sent: list[str] = []

    def send(folder: Any, store: object) -> RescuedData:
        sent.append(os.path.relpath(folder.path, tmp_path / "inst-7").partition("/data")[0])
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"s3": {"name": "s3", "endpoint": "http://a"}}) + "\n"))
    assert rescue.main([str(tmp_path), "7", "inst-7/*/*"]) == 0
    assert sent == ["10/one", "10/two", "9/one", "2/one"]


def test_a_pod_s_folder_that_fails_keeps_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for pod in ("3/one", "2/two", "1/three"):
        leave(tmp_path / "inst-7" / pod)

    def send(folder: Any, store: object) -> RescuedData:
        if "/3/" in folder.path:
            raise OSError(errno.EAGAIN, "2 files change while they are sent", folder.files)
        folder.remove()
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"s3": {"name": "s3", "endpoint": "http://a"}}) + "\n"))
    assert rescue.main([str(tmp_path), "7", "inst-7/*/*"]) == 1
    answer = json.loads(capsys.readouterr().out)
    assert (
        "2 files change while they are sent" in answer["error"]
        and "(1 of 3 folders could not be sent)" in answer["error"]
    )
    assert os.listdir(tmp_path / "inst-7") == ["3"]


def rescue_pods(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> tuple[list[str], str]:
    """Rescue the folders of pods, of which those of launch 9 fail: which launches were sent, and the error."""
    sent: list[str] = []

    def send(folder: Any, store: object) -> RescuedData:
        launch = os.path.relpath(folder.path, tmp_path / "inst-7").partition("/")[0]
        if launch == "9":
            raise OSError(errno.EAGAIN, "2 files change while they are sent", folder.files)
        sent.append(launch)
        folder.remove()
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps({"s3": {"name": "s3", "endpoint": "http://a"}}) + "\n"))
    assert rescue.main([str(tmp_path), "7", "inst-7/*/*"]) == 1
    return sent, json.loads(capsys.readouterr().out)["error"]


def leave_file(root: Path, name: str, url: str = "s3://lab/run") -> Path:
    """A folder of job 7 with one file that was not sent."""
    folder = leave(root)
    facts = json.loads((folder / "mount.json").read_text())
    (folder / "mount.json").write_text(json.dumps({**facts, "url": url}))
    (folder / "files" / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "files" / name).write_text("x")
    return folder


def test_an_older_version_waits_for_a_newer_folder_that_could_not_be_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    top = tmp_path / "inst-7"
    leave_file(top / "9/a", "sub/last")
    leave_file(top / "8/a", "sub/other")
    leave_file(top / "7/a", "last", "s3://lab/run/sub")
    leave_file(top / "6/a", "sub/last", "s3://lab/run2")
    # What is held back holds what is older still.
    leave_file(top / "5/a", "sub/last")
    (leave_file(top / "5/b", "sub/last") / "files/more").write_text("x")
    leave_file(top / "4/a", "more")
    # What the store has as it is would not be sent.
    folder = leave_file(top / "3/a", "sub/last")
    status = (folder / "files/sub/last").stat()
    (folder / "synced.jsonl").write_text(json.dumps(["sub/last", status.st_size, status.st_mtime_ns, "e"]) + "\n")
    sent, error = rescue_pods(tmp_path, monkeypatch, capsys)
    assert sent == ["8", "6", "3"]
    assert "2 files change while they are sent" in error and "(5 of 8 folders could not be sent)" in error
    assert sorted(os.listdir(top)) == ["4", "5", "7", "9"]


def test_a_newer_folder_that_cannot_be_listed_holds_back_its_place_in_the_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    top = tmp_path / "inst-7"
    for launch, url in (("9", "run"), ("8", "run/sub"), ("7", "run"), ("6", "run2"), ("5", "")):
        leave_file(top / launch / "a", "other", f"s3://lab/{url}".rstrip("/"))

    def list_some(path: str) -> Any:
        if "/9/" in path:
            raise PermissionError(errno.EACCES, "denied", path)
        return list_files(path)

    monkeypatch.setattr(rescue, "list_files", list_some)
    assert rescue_pods(tmp_path, monkeypatch, capsys)[0] == ["6"]


def test_a_store_that_does_not_answer_is_waited_for_once_and_keeps_no_other_store(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    facts = {"url": "s3://lab/run", "mode": "MOUNT_CACHED", "markers": []}
    for name, store in (("1", "away"), ("2", "away"), ("3", "there")):
        folder = tmp_path / "data/7" / name
        (folder / "files").mkdir(parents=True)
        (folder / "mount.json").write_text(json.dumps({**facts, "store": store}))
    tried: list[str] = []

    def send(folder: Any, store: object) -> RescuedData:
        tried.append(os.path.basename(folder.path))
        if folder.mount.store == "away":
            raise ObjectStoreError(StoreTrouble.SILENT, "no answer")
        folder.remove()
        return RescuedData(1, 2)

    monkeypatch.setattr(rescue, "rescue_folder", send)
    stores = {name: StoreAccess(name, "http://127.0.0.1:9") for name in ("away", "there")}
    with pytest.raises(ObjectStoreError, match="no answer"):
        rescue_job(str(tmp_path), 7, stores)
    assert tried == ["1", "3"]
