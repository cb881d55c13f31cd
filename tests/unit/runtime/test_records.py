"""The node's record as bytes and as files."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from overspan.bridge.runtime.core import kernel, shim_control
from overspan.bridge.runtime.core.node_records import (
    RECORD_SIZE,
    NodeRecord,
    begin_record,
    claim,
    close_record,
    decode_record,
    encode_record,
    format_key,
    give_up_claim,
    read_record,
    shim_alive,
    update_record,
)

STARTED = NodeRecord(4194303, 4194302, 10**12, "9ec52a01-9ef9-4680-b4a8-bb3c5c598e5a", 10**12, 1795262155.007671)
ENDED = STARTED._replace(ended_at=1795262156.5, exit_code=3, strays_killed=2, max_rss=10652)
KEY = "trainer.0.1.0"


def test_key_names_one_run() -> None:
    assert format_key("trainer", 2, 0, 7) == "trainer.2.0.7"


@pytest.mark.parametrize(
    "record",
    [
        STARTED,
        ENDED,
        STARTED._replace(ended_at=2.0, signal=11, core_dumped=True),
        STARTED._replace(ended_at=2.0, error="cannot enter /größe/\udcff: Datei 'x'\n", failed_at="directory", errno=2),
    ],
)
def test_record_is_read_as_written(record: NodeRecord) -> None:
    data = encode_record(record)
    assert len(data) == RECORD_SIZE
    assert decode_record(data) == record


@pytest.mark.parametrize("letter", ["x", "ü", "\udcff", '"', "\0", "😀"])
def test_long_error_is_cut(letter: str) -> None:
    full = ENDED._replace(user_seconds=99999.123, system_seconds=99999.123, max_rss=2**40, strays_left=9999)
    record = full._replace(exit_code=None, error="cannot: " + letter * 5000, failed_at="directory", errno=36)
    read = decode_record(encode_record(record))
    assert read is not None
    assert record.error.startswith(read.error) and len(read.error) >= 8
    assert read._replace(error="") == record._replace(error="")


def test_started_record_has_not_ended() -> None:
    assert not STARTED.ended
    assert ENDED.ended


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * RECORD_SIZE,
        b" " * (RECORD_SIZE - 1) + b"\n",
        encode_record(ENDED)[:-1],
        encode_record(ENDED) + b"\n",
        encode_record(ENDED).replace(b'"v":1', b'"v":9'),
        b"[]".ljust(RECORD_SIZE - 1) + b"\n",
        b'{"v":1}'.ljust(RECORD_SIZE - 1) + b"\n",
        b'{"v":1,"pid":1'.ljust(RECORD_SIZE - 1) + b"\n",
    ],
)
def test_what_is_no_record_is_none(data: bytes) -> None:
    assert decode_record(data) is None


def test_fields_of_a_later_version_are_skipped() -> None:
    data = encode_record(ENDED).rstrip().replace(b'{"v":1', b'{"v":1,"later":true')
    assert decode_record(data.ljust(RECORD_SIZE - 1) + b"\n") == ENDED


def test_record_from_start_to_end(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert read_record(folder, KEY) is None
    fd = begin_record(folder, KEY, STARTED)
    assert read_record(folder, KEY) == STARTED
    inode = (tmp_path / f"{KEY}.start").stat().st_ino
    update_record(fd, ENDED)
    os.close(fd)
    # Not renamed yet, and read all the same.
    assert read_record(folder, KEY) == ENDED
    close_record(folder, KEY)
    assert read_record(folder, KEY) == ENDED
    assert [(entry.name, entry.stat().st_ino, entry.stat().st_size) for entry in tmp_path.iterdir()] == [
        (f"{KEY}.end", inode, RECORD_SIZE)
    ]


def test_refused_write_leaves_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space"):
        begin_record(str(tmp_path), KEY, STARTED)
    assert list(tmp_path.iterdir()) == []


def test_empty_file_is_no_record(tmp_path: Path) -> None:
    (tmp_path / f"{KEY}.end").touch()
    assert read_record(str(tmp_path), KEY) is None
    os.close(begin_record(str(tmp_path), KEY, STARTED))
    assert read_record(str(tmp_path), KEY) == STARTED


def test_key_is_claimed_once(tmp_path: Path) -> None:
    folder = str(tmp_path)
    assert not shim_alive(folder, KEY)
    lock = claim(folder, KEY)
    assert shim_alive(folder, KEY)
    with pytest.raises(FileExistsError):
        claim(folder, KEY)
    os.close(lock)
    assert not shim_alive(folder, KEY)
    with pytest.raises(FileExistsError):
        claim(folder, KEY)


def test_claim_that_was_found_without_its_lock_is_never_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, lock = str(tmp_path), fcntl.flock
    found: list[str] = []

    def lock_late(fd: int, operation: int) -> None:
        if operation == fcntl.LOCK_EX:
            # A supervisor that was started again looks between the two steps of a claim.
            found.append(shim_control.adopt(folder, KEY).state)
        lock(fd, operation)

    monkeypatch.setattr(fcntl, "flock", lock_late)
    with pytest.raises(FileExistsError):
        claim(folder, KEY)
    assert found == [shim_control.UNSTARTED] == [shim_control.adopt(folder, KEY).state]


def test_claim_that_is_held_is_not_given_up(tmp_path: Path) -> None:
    lock = claim(str(tmp_path), KEY)
    assert not give_up_claim(str(tmp_path), KEY)
    os.close(lock)
    assert [give_up_claim(str(tmp_path), KEY) for _ in range(2)] == [True, True]


def test_without_locks_the_process_is_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(fd: int, operation: int) -> None:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuse)
    folder = str(tmp_path)
    os.close(claim(folder, KEY))
    assert not shim_alive(folder, KEY)
    here = os.getpid()
    record = STARTED._replace(shim_pid=here, shim_start_time=kernel.read_start_time(here))
    record = record._replace(boot_id=kernel.read_boot_id())
    fd = begin_record(folder, KEY, record)
    assert shim_alive(folder, KEY)
    update_record(fd, record._replace(shim_start_time=record.shim_start_time + 1))
    assert not shim_alive(folder, KEY)
    update_record(fd, record._replace(boot_id="another"))
    assert not shim_alive(folder, KEY)
    os.close(fd)
