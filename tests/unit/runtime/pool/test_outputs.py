"""Output of a worker that does not see the daemon's folder: what is sent, and what is kept of it."""

from __future__ import annotations

import base64
import json
import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.waiting import WaitUntil

from overspan.adapters.abilities import OutputPiece
from overspan.adapters.contract import LogRequest
from overspan.adapters.local.files.launch_files import LaunchFiles
from overspan.adapters.local.files.logs import read_log
from overspan.adapters.pool import outputs as kept
from overspan.adapters.pool.outputs import keep_piece
from overspan.adapters.worker_messages import read_piece
from overspan.bridge.runtime.core.run_directory import RunDirectory
from overspan.bridge.runtime.pool import outputs
from overspan.bridge.runtime.pool.connection import Dismissed
from overspan.bridge.runtime.pool.outputs import LaunchCopy, OutputCopies

Print = Callable[..., None]


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    (tmp_path / "there").mkdir()
    return RunDirectory(str(tmp_path / "there"), 0)


@pytest.fixture
def name_file(directory: RunDirectory) -> Print:
    def write(path: str, start: int = 0, **fields: Any) -> None:
        line = {"task": "t", "node": 0, "attempt": 0, "run": 0, "stream": "output", **fields}
        with open(directory.streams, "a", encoding="utf-8") as file:
            file.write(json.dumps({**line, "path": path, "start": start}) + "\n")

    return write


def take_all(copy: LaunchCopy) -> list[tuple[int, int, bytes]]:
    """The pieces that are due, as (file, offset, bytes)."""
    found = []
    while (piece := copy.read_piece()) is not None:
        copy.note_sent(piece)
        found.append((piece["number"], piece["offset"], base64.b64decode(piece["data"])))
    return found


def test_each_file_is_named_at_once_and_sent_as_it_grows(directory: RunDirectory, name_file: Print) -> None:
    copy, path = LaunchCopy(directory), f"{directory.path}/out"
    assert take_all(copy) == []
    name_file(path)
    assert take_all(copy) == [(0, 0, b"")]
    Path(path).write_bytes(b"one")
    assert take_all(copy) == [(0, 0, b"one")]
    with open(path, "ab") as file:
        file.write(b" two")
    assert take_all(copy) == [(0, 3, b" two")]


def test_a_piece_that_was_not_taken_is_sent_again(directory: RunDirectory, name_file: Print) -> None:
    copy, path = LaunchCopy(directory), f"{directory.path}/out"
    Path(path).write_bytes(b"one")
    name_file(path)
    assert copy.read_piece() == copy.read_piece() is not None


def test_attempts_that_append_to_one_file_have_their_own_parts(directory: RunDirectory, name_file: Print) -> None:
    path = f"{directory.path}/out"
    Path(path).write_bytes(b"before first second")
    name_file(path, start=7)
    name_file(path, start=13, attempt=1)
    assert take_all(LaunchCopy(directory)) == []
    os.unlink(directory.streams)
    copy = LaunchCopy(directory)
    name_file(path, start=7)
    name_file(path, start=13, attempt=1)
    assert take_all(copy) == [(0, 0, b"first "), (1, 0, b"second")]


def test_lines_of_the_launch_before_are_its_own(directory: RunDirectory, name_file: Print) -> None:
    Path(f"{directory.path}/old").write_bytes(b"old")
    name_file(f"{directory.path}/old")
    copy = LaunchCopy(directory)
    name_file(f"{directory.path}/new", attempt=1)
    assert take_all(copy) == [(1, 0, b"")]


def test_large_files_go_in_pieces_up_to_a_limit(
    directory: RunDirectory, name_file: Print, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outputs, "PIECE", 4)
    monkeypatch.setattr(outputs, "MOST_BYTES", 10)
    copy, path = LaunchCopy(directory), f"{directory.path}/out"
    Path(path).write_bytes(b"0123456789abc")
    name_file(path)
    assert take_all(copy) == [(0, 0, b"0123"), (0, 4, b"4567"), (0, 8, b"89")]


def test_what_is_no_file_or_is_gone_or_shorter_by_now_is_passed_over(directory: RunDirectory, name_file: Print) -> None:
    copy, path = LaunchCopy(directory), f"{directory.path}/out"
    os.mkfifo(f"{directory.path}/pipe")
    name_file(f"{directory.path}/pipe")
    name_file(f"{directory.path}/gone", stream="error")
    name_file(path, node=1)
    Path(path).write_bytes(b"long text")
    assert take_all(copy) == [(0, 0, b""), (1, 0, b""), (2, 0, b"long text")]
    Path(path).write_bytes(b"short")
    assert take_all(copy) == []


class PlayedDaemon:
    """Takes pieces; answers as it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.pieces: list[dict[str, Any]] = []
        self.answers: list[Any] = []
        self.woken = threading.Event()
        monkeypatch.setattr(outputs, "LOOK_SECONDS", 0.01)
        monkeypatch.setattr(outputs, "_FIRST_PAUSE", 0.001)

    def open(self, name: str) -> PlayedDaemon:
        return self

    def close(self) -> None:
        return

    def exchange(self, message: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError("output is posted")

    def post(self, path: str, message: dict[str, Any], wait: float = 0.0) -> dict[str, Any]:
        answer = self.answers.pop(0) if self.answers else {"taken": True}
        if isinstance(answer, Exception):
            raise answer
        self.pieces.append(message)
        found: dict[str, Any] = answer
        return found


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> PlayedDaemon:
    return PlayedDaemon(monkeypatch)


def follow(daemon: PlayedDaemon, directory: RunDirectory) -> OutputCopies:
    """The copies of one launch, in a thread."""
    copies = OutputCopies(daemon, {"job": 7, "word": "w"}, daemon.woken.set)
    copies.follow("1.0", directory)
    copies.start()
    return copies


def test_an_end_waits_until_the_daemon_has_what_was_printed(
    daemon: PlayedDaemon, directory: RunDirectory, name_file: Print, wait_until: WaitUntil
) -> None:
    daemon.answers = [OSError("away"), OSError("away")]
    copies = follow(daemon, directory)
    Path(f"{directory.path}/out").write_bytes(b"all of it")
    name_file(f"{directory.path}/out")
    assert not copies.catch_up("1.0")
    wait_until(lambda: copies.catch_up("1.0"), 10, "the copy")
    assert [base64.b64decode(each["data"]) for each in daemon.pieces] == [b"all of it"] and daemon.woken.is_set()
    # The next end waits again.
    assert not copies.catch_up("1.0")
    copies.stop()
    assert copies.catch_up("1.0")


def test_a_launch_that_is_anothers_by_now_is_copied_no_more(
    daemon: PlayedDaemon, directory: RunDirectory, name_file: Print, wait_until: WaitUntil
) -> None:
    daemon.answers = [{"taken": False}]
    copies = follow(daemon, directory)
    name_file(f"{directory.path}/out")
    wait_until(lambda: copies.catch_up("1.0"), 10, "the end of the copy")
    Path(f"{directory.path}/out").write_bytes(b"late")
    assert copies.catch_up("1.0") and len(daemon.pieces) == 1
    copies.stop()


def test_a_worker_that_is_dismissed_copies_nothing_more(
    daemon: PlayedDaemon, directory: RunDirectory, name_file: Print, wait_until: WaitUntil
) -> None:
    daemon.answers = [Dismissed("over")]
    copies = follow(daemon, directory)
    name_file(f"{directory.path}/out")
    wait_until(daemon.woken.is_set, 10, "the wake-up")
    assert copies.catch_up("1.0") and not daemon.pieces


# --- what the daemon keeps --------------------------------------------------------------------------------------------

STREAM: dict[str, str | int] = {"task": "t", "node": 0, "attempt": 0, "run": 0, "stream": "output"}


def read(place: LaunchFiles) -> bytes:
    """The log as `span logs` has it."""
    return read_log(place, LogRequest(place.handle, "t")).data


def test_pieces_make_the_log_in_whatever_way_they_come(tmp_path: Path) -> None:
    place = LaunchFiles(str(tmp_path), 3, 1)
    for offset, data in ((0, b""), (0, b"one "), (4, b"two"), (0, b"one "), (4, b"two")):
        keep_piece(place, OutputPiece(7, "w", place.handle, 0, STREAM, offset, data))
    assert read(place) == b"one two"
    (file,) = (tmp_path / "runs" / "3" / "outputs").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("1.0", 0o600)
    assert len(Path(place.streams).read_text().splitlines()) == 1


def test_no_more_is_kept_than_a_worker_sends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept, "MOST_BYTES", 5)
    place = LaunchFiles(str(tmp_path), 3, 0)
    for offset, data in ((0, b"012"), (3, b"3456789"), (1 << 40, b"x")):
        keep_piece(place, OutputPiece(7, "w", place.handle, 0, STREAM, offset, data))
    assert read(place) == b"01234"


PIECE = {"job": 7, "word": "w", "handle": "3.0", "number": 0, "stream": STREAM, "offset": 0, "data": "b25l"}


def test_a_piece_is_read() -> None:
    assert read_piece(PIECE) == OutputPiece(7, "w", "3.0", 0, STREAM, 0, b"one")


@pytest.mark.parametrize(
    "wrong",
    [
        {"job": -1},
        {"word": "../x"},
        {"number": 10**6},
        {"offset": "0"},
        {"data": "*"},
        {"stream": {**STREAM, "stream": "/etc/passwd"}},
        {"stream": {**STREAM, "node": True}},
        {"stream": {}},
    ],
)
def test_what_is_no_piece_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises((ValueError, LookupError, TypeError, AttributeError)):
        read_piece({**PIECE, **wrong})
