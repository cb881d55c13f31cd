"""The journal: whole lines, durable together, readable after any crash."""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

import pytest

from overspan.bridge.model.events import Cancel, Launch, NodeStarted
from overspan.bridge.runtime.core.journal import Journal, JournalEntry

HEADER = {"format": 1, "job": 7, "launch": 0}


def _open(folder: Path) -> Journal:
    return Journal(str(folder / "journal"), 7, 0)


def _lines(folder: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in (folder / "journal").read_bytes().splitlines()]


def test_what_was_flushed_is_read_again(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    assert journal.entries == [] and not journal.ended
    journal.add(Launch(1.5, "a", 0))
    journal.add(Cancel(2.0, by="alice"), 3)
    journal.flush()
    assert not journal.dirty
    journal.close()
    again = _open(tmp_path)
    assert again.entries == [JournalEntry(Launch(1.5, "a", 0)), JournalEntry(Cancel(2.0, by="alice"), 3)]
    assert not again.dirty and not again.ended
    again.close()
    assert _lines(tmp_path)[0] == HEADER
    assert os.stat(tmp_path / "journal").st_mode & 0o777 == 0o600


def test_what_was_not_flushed_never_was(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.add(Launch(1.0, "a", 0))
    assert journal.dirty
    journal.close()
    assert (tmp_path / "journal").read_bytes() == b""


@pytest.mark.parametrize("cut", range(1, 40, 3))
def test_torn_line_is_cut_off_wherever_it_broke(tmp_path: Path, cut: int) -> None:
    journal = _open(tmp_path)
    journal.add(Launch(1.0, "a", 0))
    journal.flush()
    whole = (tmp_path / "journal").read_bytes()
    journal.add(Launch(2.0, "b", 0))
    journal.flush()
    journal.close()
    torn = (tmp_path / "journal").read_bytes()[: len(whole) + cut]
    (tmp_path / "journal").write_bytes(torn)
    again = _open(tmp_path)
    assert (tmp_path / "journal").read_bytes() == whole
    assert [entry.event for entry in again.entries] == [Launch(1.0, "a", 0)]
    again.add(Launch(3.0, "c", 0))
    again.flush()
    again.close()
    assert [line.get("task") for line in _lines(tmp_path)] == [None, "a", "c"]


def test_end(tmp_path: Path) -> None:
    journal = _open(tmp_path)
    journal.end()
    journal.flush()
    journal.close()
    again = _open(tmp_path)
    assert again.ended
    again.close()


@pytest.mark.parametrize("name", ["write", "fdatasync"])
def test_full_disk_keeps_whole_lines_and_what_is_owed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    journal = _open(tmp_path)
    journal.flush()
    journal.add(Launch(1.0, "a", 0))
    write = os.write

    def fail(fd: int, data: bytes = b"") -> int:
        # Half of it fits, then no more.
        if name == "write" and len(data) > 10:
            return write(fd, data[:10])
        raise OSError(errno.ENOSPC, "full")

    with monkeypatch.context() as patch:
        patch.setattr(os, name, fail)
        with pytest.raises(OSError, match="full"):
            journal.flush()
    assert _lines(tmp_path) == [HEADER]
    journal.add(NodeStarted(2.0, "a", 0, 0))
    journal.flush()
    journal.close()
    assert [line.get("event") for line in _lines(tmp_path)] == [None, "Launch", "NodeStarted"]


def test_line_that_is_no_json_is_refused(tmp_path: Path) -> None:
    (tmp_path / "journal").write_text("broken\n{}\n")
    with pytest.raises(ValueError):
        _open(tmp_path)
