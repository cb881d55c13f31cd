"""Room on the state folder's disk: what is told of each shortage, and when there is a reserve."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from overspan.bridge.config.disk_space import (
    RESERVE,
    ROOM,
    find_shortage,
    keep_reserve,
    release_reserve,
    word_shortage,
)


def read_as(free: int, inodes: int = 100) -> os.statvfs_result:
    """What statvfs tells of a disk of 1 GiB."""
    block = 4096
    return os.statvfs_result((block, block, 1 << 18, free // block, free // block, 200, inodes, inodes, 0, 255))


def set_space(monkeypatch: pytest.MonkeyPatch, free: int, number: int = 0, inodes: int = 100) -> None:
    """A disk with that much room, on which writes fail with that errno, if any."""
    monkeypatch.setattr(os, "statvfs", lambda path: read_as(free, inodes))

    def fail(size: int) -> bytes:
        raise OSError(number, os.strerror(number))

    if number:
        monkeypatch.setattr(os, "urandom", fail)


@pytest.mark.parametrize(
    ("number", "free", "inodes", "words", "look"),
    [
        (errno.ENOSPC, 4096, 5, "is full: 4.0 KiB of 1.0 GiB are free; the daemon needs 256.0 KiB", "df -h"),
        (errno.ENOSPC, 1 << 29, 0, "takes no more files: it has no free inode", "df -i"),
        (errno.EDQUOT, 1 << 29, 5, "quota for the state folder {} is used up: the disk has 512.0 MiB free", "quota -s"),
    ],
)
def test_each_shortage_is_told_with_what_there_is_and_where_to_look(
    number: int, free: int, inodes: int, words: str, look: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    set_space(monkeypatch, free, number, inodes)
    told = find_shortage(str(tmp_path))
    assert told is not None and words.format(tmp_path) in told.message and str(tmp_path) in told.message
    assert f"{look} {tmp_path}" in told.remedy and "the next command starts the daemon" in told.remedy
    assert list(tmp_path.iterdir()) == []


def test_another_failure_is_no_shortage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_shortage(str(tmp_path)) is None and list(tmp_path.iterdir()) == []
    assert find_shortage(str(tmp_path / "gone")) is None
    set_space(monkeypatch, 1 << 29, errno.EIO)
    assert find_shortage(str(tmp_path)) is None


def test_a_folder_that_cannot_be_read_is_told_without_room(tmp_path: Path) -> None:
    assert "0 bytes of 0 bytes" in word_shortage(str(tmp_path / "gone"), errno.ENOSPC).message


def test_the_reserve_is_made_with_much_room_and_removed_with_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = tmp_path / "daemon.reserve"
    set_space(monkeypatch, ROOM - 4096)
    assert not keep_reserve(str(tmp_path)) and not release_reserve(str(tmp_path))
    set_space(monkeypatch, ROOM)
    assert keep_reserve(str(tmp_path)) and reserve.stat().st_size == RESERVE
    assert reserve.stat().st_mode & 0o077 == 0
    assert not release_reserve(str(tmp_path)), "there is room without it"
    set_space(monkeypatch, 0, errno.ENOSPC)
    assert keep_reserve(str(tmp_path)), "it is there"
    assert release_reserve(str(tmp_path)) and list(tmp_path.iterdir()) == []
    assert not release_reserve(str(tmp_path))


def test_a_reserve_that_was_cut_short_is_made_anew_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reserve = tmp_path / "daemon.reserve"
    reserve.write_bytes(b"x")
    set_space(monkeypatch, ROOM)
    assert keep_reserve(str(tmp_path)) and reserve.stat().st_size == RESERVE
    reserve.write_bytes(b"x")
    set_space(monkeypatch, ROOM, errno.EDQUOT)
    assert not keep_reserve(str(tmp_path)) and not reserve.exists()
