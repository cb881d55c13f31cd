"""What a job that is over leaves: one pack, read as the files were, spread out again for another launch."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from pathlib import Path

import pytest

from overspan.adapters.contract import Launch, LogRequest
from overspan.adapters.local.files import journals, launch_files
from overspan.adapters.local.files.ended_runs import RunPacker
from overspan.adapters.local.files.journals import read_news
from overspan.adapters.local.files.launch_files import LaunchFiles, mark_ended
from overspan.adapters.local.files.logs import read_log
from overspan.adapters.local.files.run_packs import LARGEST, pack_run, unpack_run
from overspan.adapters.local.launches import launches
from overspan.adapters.local.launches.launches import GrantFacts
from overspan.adapters.local.queue.booking import Bookings
from overspan.adapters.local.queue.capacity import Capacity
from overspan.bridge.model.errors import NotFound, Unreachable
from overspan.bridge.model.events import Event, Granted, event_to_document
from overspan.bridge.model.job import new_job
from overspan.bridge.model.spec import JobSpec, TaskSpec
from overspan.bridge.runtime.core.loss_records import is_damage
from overspan.bridge.runtime.core.node_records import NodeRecord, encode_record

LOG = b"one\ntwo\n"


@pytest.fixture
def place(tmp_path: Path) -> LaunchFiles:
    launches.make_root(str(tmp_path))
    return end(LaunchFiles(str(tmp_path), 7, 0))


def end(place: LaunchFiles) -> LaunchFiles:
    """A launch that is over, with all the files of one."""
    launch = Launch(f"tok-{place.job}-{place.launch}", new_job(place.job, JobSpec("j", (TaskSpec("a"),)), 3.0))
    run = launches.make_run(place, launch, Capacity(4000, 4096))
    run.booking = Bookings(Capacity(4000, 4096)).book(run.handle, run.ticket.variants)
    run.addresses = ("127.1.1.1",)
    launches.write_grant(run, GrantFacts("c", 1.0, "here", "auto", "boot"))
    write(f"{place.folder}/nodes/a.0.{place.launch}.0.claim", b"", 0o400)
    write(
        f"{place.folder}/nodes/a.0.{place.launch}.0.end",
        encode_record(NodeRecord(pid=5, shim_pid=4, shim_start_time=1, boot_id="b", ended_at=5.0)),
    )
    write(f"{place.folder}/scripts/a/slurm_script", b"#!/bin/sh\ntrue\n", 0o700)
    path = f"{place.folder}/logs/a.0.{place.launch}.0.out"
    write(path, LOG)
    line = {"task": "a", "node": 0, "attempt": place.launch, "run": 0, "stream": "output", "path": path, "start": 0}
    with open(place.streams, "a", encoding="utf-8") as file:
        file.write(json.dumps(line) + "\n")
    events: list[Event] = [Granted(4.0, ())]
    write(place.journal, b"".join(json.dumps(event_to_document(event)).encode() + b"\n" for event in events))
    launch_files.append_lines(place.journal, [journals.END])
    mark_ended(place)
    return place


def write(path: str, data: bytes, mode: int = 0o600) -> None:
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    Path(path).write_bytes(data)
    os.chmod(path, mode)


def files(folder: str) -> dict[str, tuple[bytes, int]]:
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mode) for path in paths}


def pack(
    place: LaunchFiles, live: tuple[int, ...] = (), handles: tuple[str, ...] = (), tokens: tuple[str, ...] = ()
) -> None:
    asyncio.run(RunPacker(place.root, asyncio.Lock(), lambda: live).pack(handles, tokens))


def test_a_job_that_is_over_leaves_one_file_that_is_read_as_before(place: LaunchFiles) -> None:
    request = LogRequest(place.handle, "a")
    news, log = read_news(place, ""), read_log(place, request)
    pack(place)
    assert os.listdir(place.folder) == ["pack.zip"] and not os.listdir(f"{place.root}/ended")
    assert os.stat(f"{place.folder}/pack.zip").st_mode & 0o777 == 0o600
    assert read_news(place, "") == news and journals.is_over(place)
    assert launches.find_launch(place) == "tok-7-0"
    packed = read_log(place, request)
    assert (packed.data, packed.size) == (log.data, log.size) == (LOG, len(LOG))
    assert packed.path == f"{place.folder}/pack.zip/logs/a.0.0.0.out"
    assert read_log(place, LogRequest(place.handle, "a", offset=-4)).data == b"two\n"


def test_whoever_has_an_output_file_open_reads_on(place: LaunchFiles) -> None:
    with open(f"{place.folder}/logs/a.0.0.0.out", "rb") as file:
        assert file.read(4) == b"one\n"
        pack(place)
        assert file.read() == b"two\n"


def test_what_is_not_ours_is_large_or_is_asked_for_often_stays(place: LaunchFiles, tmp_path: Path) -> None:
    kept = {
        "model.bin": b"x",
        "logs/own.out": b"x",
        "logs/b.0.0.0.out": b"x" * (LARGEST + 1),
        "steps/0.jsonl": b"{}\n",
        "results/a": b"y",
    }
    for name, data in kept.items():
        write(f"{place.folder}/{name}", data)
    outside = tmp_path / "slurm-7.out"
    outside.write_text("z")
    os.symlink(outside, f"{place.folder}/logs/c.out")
    pack(place)
    assert {name for name in files(place.folder) if name != "pack.zip"} == {*kept, "logs/c.out"}
    assert outside.read_text() == "z" and os.path.islink(f"{place.folder}/logs/c.out")


def test_logs_that_something_may_still_write_to_stay(place: LaunchFiles) -> None:
    record = NodeRecord(pid=5, shim_pid=4, shim_start_time=1, boot_id="b", ended_at=5.0, strays_left=1)
    write(f"{place.folder}/nodes/a.0.0.0.end", encode_record(record))
    pack(place)
    assert set(files(place.folder)) == {"pack.zip", "logs/a.0.0.0.out"}


def test_a_log_that_grows_while_it_is_packed_stays(place: LaunchFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    path = f"{place.folder}/logs/a.0.0.0.out"

    def replace(source: str, target: str) -> None:
        write(path, LOG + b"late\n")
        os.rename(source, target)

    monkeypatch.setattr(os, "replace", replace)
    pack_run(place.folder)
    assert read_log(place, LogRequest(place.handle, "a")).data == LOG + b"late\n"


def test_another_launch_finds_everything_as_it_was(place: LaunchFiles) -> None:
    before = files(place.folder)
    pack(place)
    again = end(LaunchFiles(place.root, 7, 1))
    now = files(place.folder)
    assert before.keys() < now.keys() and "pack.zip" not in now
    assert all(now[name] == held for name, held in before.items() if name != "streams.jsonl")
    pack(again)
    assert os.listdir(place.folder) == ["pack.zip"]
    for attempt in (0, 1):
        assert read_log(again, LogRequest(again.handle, "a", attempt=attempt)).data == LOG


@pytest.mark.parametrize("survivors", range(7))
def test_a_crash_in_the_middle_loses_nothing_and_is_finished(
    place: LaunchFiles, monkeypatch: pytest.MonkeyPatch, survivors: int
) -> None:
    before = files(place.folder)
    unlink, calls = os.unlink, []

    def die(path: str) -> None:
        if not path.endswith(".new"):
            calls.append(path)
            if len(calls) > survivors:
                raise KeyboardInterrupt
        unlink(path)

    monkeypatch.setattr(os, "unlink", die)
    with pytest.raises(KeyboardInterrupt):
        pack_run(place.folder)
    monkeypatch.undo()
    assert read_log(place, LogRequest(place.handle, "a")).data == LOG and journals.is_over(place)
    pack(place)
    assert os.listdir(place.folder) == ["pack.zip"]
    unpack_run(place.folder)
    assert files(place.folder) == before


def test_a_job_that_has_or_may_have_another_launch_is_not_packed(place: LaunchFiles) -> None:
    pack(place, live=(7,))
    pack(place, handles=("7.1",))
    pack(place, tokens=("0c1e-7-1",))
    assert os.path.exists(place.plan) and os.listdir(f"{place.root}/ended") == ["7.0"]
    pack(place, live=(8,), handles=("8.0",), tokens=("0c1e-8-0",))
    assert not os.path.exists(place.plan)


def test_what_was_lost_stays_as_it_was_found(place: LaunchFiles) -> None:
    write(f"{place.root}/lost/7.0", b"{}")
    pack(place)
    assert os.path.exists(place.plan) and not os.listdir(f"{place.root}/ended")


def test_a_damaged_pack_is_said_and_hinders_nobody(place: LaunchFiles, caplog: pytest.LogCaptureFixture) -> None:
    pack(place)
    Path(place.folder, "pack.zip").write_bytes(b"PK torn")
    with pytest.raises(NotFound, match=r"the pack of an ended job is damaged: .*7/pack\.zip"):
        read_log(place, LogRequest(place.handle, "a"))
    with pytest.raises(OSError, match="damaged") as told:
        read_news(place, "")
    assert is_damage(told.value)
    with caplog.at_level(logging.WARNING):
        again = end(LaunchFiles(place.root, 7, 1))
    assert "is kept as pack.damaged.zip" in caplog.text
    pack(again)
    assert sorted(os.listdir(place.folder)) == ["pack.damaged.zip", "pack.zip"]
    assert read_log(again, LogRequest(again.handle, "a")).data == LOG


def test_a_full_disk_packs_later(place: LaunchFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    before = files(place.folder)

    def fill(fd: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fdatasync", fill)
    with pytest.raises(Unreachable, match="cannot be packed: No space left on device"):
        pack(place)
    assert files(place.folder) == before
    monkeypatch.undo()
    pack(place)
    assert os.listdir(place.folder) == ["pack.zip"]


def test_one_folder_that_cannot_be_packed_keeps_no_other(place: LaunchFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    other = end(LaunchFiles(place.root, 8, 0))
    folders = []

    def refuse(folder: str) -> None:
        folders.append(folder)
        if folder == place.folder:
            raise PermissionError(13, os.strerror(13))

    monkeypatch.setattr("overspan.adapters.local.files.ended_runs.pack_run", refuse)
    pack(place)
    assert folders == [place.folder, other.folder] and os.listdir(f"{place.root}/ended") == ["7.0"]
