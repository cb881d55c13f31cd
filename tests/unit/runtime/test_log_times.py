"""When logs grew, as a supervisor notes it and an adapter reads it."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from overspan.adapters.contract import LogRequest
from overspan.adapters.log_index import FileRange, find_marks, find_range
from overspan.bridge.model.job import Attempt, Job, NodeRun, new_job
from overspan.bridge.model.spec import JobSpec, Origin, TaskSpec
from overspan.bridge.model.states import State
from overspan.bridge.runtime.core import log_times
from overspan.bridge.runtime.core.log_times import LogTimes, add_line, is_near, thin
from overspan.bridge.runtime.core.run_directory import RunDirectory


def _job(attempts: int = 1) -> Job:
    job = new_job(42, JobSpec("train", (TaskSpec("a"),), origin=Origin(user="alice")), 0.0)
    known = tuple(
        Attempt(
            number, State.RUNNING, 0.0, (NodeRun(0, started_at=1.0),), ended_at=None if number + 1 == attempts else 5.0
        )
        for number in range(attempts)
    )
    return replace(job, tasks=(replace(job.tasks[0], attempts=known),))


def _list(folder: Path, path: Path, attempt: int = 0, start: int = 0) -> None:
    row = {"task": "a", "node": 0, "attempt": attempt, "run": 0, "stream": "output", "path": str(path), "start": start}
    with (folder / "streams.jsonl").open("a") as file:
        file.write(json.dumps(row) + "\n")


def _read(path: Path) -> list[object]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _marks(folder: Path, attempt: int) -> tuple[tuple[float, int], ...]:
    part = find_range(_read(folder / "streams.jsonl"), LogRequest("", "a", 0, attempt))
    assert part is not None
    return find_marks(_read(folder / "times.jsonl"), part, str(folder))


def test_sizes_are_noted_once_a_second_and_only_where_they_grew(tmp_path: Path) -> None:
    times, log = LogTimes(RunDirectory(str(tmp_path), 0)), tmp_path / "logs.out"
    times.look(_job(), 100.0)
    _list(tmp_path, log)
    for at, text in ((100.5, "ab"), (101.0, "ab"), (101.5, "abc"), (102.0, "abcd"), (103.0, "abcd"), (104.0, "abcde")):
        log.write_text(text)
        times.look(_job(), at)
    assert _read(tmp_path / "times.jsonl") == [
        {"at": at, "sizes": {"logs.out": size}} for at, size in ((101.0, 2), (102.0, 4), (104.0, 5))
    ]
    assert _marks(tmp_path, 0) == ((101.0, 2), (102.0, 4), (104.0, 5))


def test_attempts_that_write_one_file_have_each_their_own_times(tmp_path: Path) -> None:
    times, log = LogTimes(RunDirectory(str(tmp_path), 0)), tmp_path / "o"
    times.look(_job(), 100.0)
    _list(tmp_path, log)
    log.write_text("abc")
    times.look(_job(), 101.0)
    _list(tmp_path, log, 1, start=4)
    log.write_text("abcdef")
    times.look(_job(2), 102.0)
    assert (_marks(tmp_path, 0), _marks(tmp_path, 1)) == (((101.0, 3), (102.0, 4)), ((102.0, 2),))
    # Another supervisor goes on, and a file that was emptied begins anew.
    again = LogTimes(RunDirectory(str(tmp_path), 0))
    again.look(_job(2), 103.0)
    again.look(_job(2), 104.0)
    log.write_text("x")
    again.look(_job(2), 105.0)
    log.write_text("x" * 9)
    again.look(_job(2), 106.0)
    assert _marks(tmp_path, 1) == ((106.0, 5),)


def test_neither_damage_nor_a_full_disk_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "streams.jsonl").write_text('garbage\n{"task": 1}\n')
    log = tmp_path / "o"
    _list(tmp_path, log)
    log.write_text("abc")

    def fail(path: str, line: bytes) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(log_times, "add_line", fail)
    times = LogTimes(RunDirectory(str(tmp_path), 0))
    times.look(_job(), 1.0)
    times.look(_job(), 2.0)
    damaged = [None, 3, {"at": "x", "sizes": {}}, {"at": 1, "sizes": {"o": "y"}}, {"at": 2.0, "sizes": {"o": 2}}]
    assert find_marks(damaged, FileRange(str(log), 0, None), str(tmp_path)) == ((2.0, 2),)


def test_a_long_list_keeps_its_newest_quarter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_times, "KEEP_BYTES", 40)
    path = tmp_path / "times.jsonl"
    for number in range(11):
        add_line(str(path), b"%03d\n" % number)
    assert path.read_bytes().split() == [b"000", b"002", b"004", b"006", b"008", b"009", b"010"]
    assert thin(b"") == b""


def test_a_network_file_system_is_asked_only_where_the_run_directory_is(tmp_path: Path) -> None:
    table = tmp_path / "mountinfo"
    root = os.path.realpath(tmp_path)
    table.write_text(
        "20 1 8:1 / / rw - ext4 /dev/sda1 rw\n"
        f"30 20 0:50 / {root}/home rw shared:5 - nfs4 server:/home rw\n"
        f"31 20 0:51 / {root}/a\\040b rw - fuse.sshfs x rw\n"
    )
    home, other = str(tmp_path / "home" / "x"), str(tmp_path / "homes" / "x")
    assert is_near(other, str(tmp_path), str(table))
    assert not is_near(home, str(tmp_path), str(table))
    assert is_near(home, str(tmp_path / "home"), str(table))
    assert not is_near(str(tmp_path / "a b" / "x"), str(tmp_path / "home"), str(table))


def test_a_link_is_followed_up_to_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, root = tmp_path / "mountinfo", os.path.realpath(tmp_path)
    table.write_text(
        f"20 1 8:1 / / rw - ext4 /dev/sda1 rw\n30 20 0:50 / {root}/home rw - autofs x rw\n"
        f"31 30 0:51 / {root}/home/ann rw - nfs4 server:/ann rw\n"
    )
    (tmp_path / "link").symlink_to(f"{root}/home/ann/deep")
    (tmp_path / "up").symlink_to("link/../x")
    (tmp_path / "ring").symlink_to("ring")
    (tmp_path / "near").symlink_to("plain")
    asked: list[str] = []
    readlink = os.readlink

    def note(path: str) -> str:
        asked.append(path)
        return readlink(path)

    monkeypatch.setattr(os, "readlink", note)
    near = {name: is_near(f"{root}/{name}/o", root, str(table)) for name in ("link", "up", "near", "home/ann/../..")}
    assert near == {"link": False, "up": False, "near": True, "home/ann/../..": False}
    assert is_near(f"{root}/link/o", f"{root}/home/ann/state", str(table))
    assert not is_near(f"{root}/link/o", f"{root}/home/bob/state", str(table))
    is_near(f"{root}/ring/o", root, str(table))
    assert not [path for path in asked if path.startswith(f"{root}/home")]
