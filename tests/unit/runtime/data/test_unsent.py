"""What a job could not send, where it lies: told and removed."""

from __future__ import annotations

import fcntl
import glob
import io
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from overspan.bridge.runtime.data import rescue
from overspan.bridge.runtime.data.folder_state import FolderState, SyncedFile
from overspan.bridge.runtime.data.mounts import list_folders
from overspan.bridge.runtime.data.unsent import (
    UnsentPlace,
    list_unsent,
    look,
    main,
    pack_places,
    read_listing,
    remove_unsent,
)


def leave(root: Path, mode: str = "MOUNT_CACHED", name: str = "0123") -> Path:
    """The folder of a mount of job 7 with two files."""
    folder = root / "data/7" / name
    (folder / "files/in").mkdir(parents=True)
    facts = {"url": "s3://lab/run", "mode": mode, "store": "s3", "markers": []}
    (folder / "mount.json").write_text(json.dumps(facts))
    (folder / "files/a").write_bytes(b"123")
    (folder / "files/in/b").write_bytes(b"4567")
    return folder


def sync(folder: Path, name: str) -> None:
    """The store has a file as it is."""
    status = os.stat(folder / "files" / name)
    FolderState(str(folder / "synced.jsonl")).put(name, SyncedFile(status.st_size, status.st_mtime_ns, "etag"))


class TestListing:
    def test_what_no_store_has_is_told(self, tmp_path: Path) -> None:
        folder = leave(tmp_path)
        os.utime(folder / "files/in/b", (2e9, 2e9))
        (found,) = list_unsent(str(tmp_path), 7)
        assert found[:7] == (7, "s3://lab/run", "s3", 2, 7, 2e9, "left")
        assert found.place == str(folder)
        sync(folder, "in/b")
        (found,) = list_unsent(str(tmp_path), 7)
        assert (found.files, found.size) == (1, 3)
        sync(folder, "a")
        assert list_unsent(str(tmp_path), 7) == [] == list_unsent(str(tmp_path), 8)

    def test_what_a_rescue_has_left_for_newer_versions(self, tmp_path: Path) -> None:
        folder = leave(tmp_path)
        (folder / "newer.json").write_text('["a"]')
        assert [each.state for each in list_unsent(str(tmp_path), 7)] == ["left"]
        sync(folder, "in/b")
        assert [each.state for each in list_unsent(str(tmp_path), 7)] == ["newer in store"]

    def test_what_is_being_sent(self, tmp_path: Path) -> None:
        leave(tmp_path)
        with rescue.hold_alone(str(tmp_path), 7):
            assert [each.state for each in list_unsent(str(tmp_path), 7)] == ["being sent"]
        assert [each.state for each in list_unsent(str(tmp_path), 7)] == ["left"]

    def test_to_look_keeps_no_rescue_from_beginning(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        leave(tmp_path)
        monkeypatch.setattr(fcntl, "flock", lambda *_: pytest.fail("a lock was tried"))
        assert len(list_unsent(str(tmp_path), 7)) == 1

    def test_copies_and_what_has_no_description_are_told_too(self, tmp_path: Path) -> None:
        leave(tmp_path, "COPY", "1")
        (leave(tmp_path, name="2") / "mount.json").write_text("")
        one = leave(tmp_path, "COPY", "3")
        shutil.rmtree(one / "files")
        (one / "files").write_bytes(b"x" * 9)
        found = [(each.state, each.url, each.size) for each in list_unsent(str(tmp_path), 7)]
        assert found == [("copy", "s3://lab/run", 7), ("unknown", "", 7), ("copy", "s3://lab/run", 9)]


class TestRemoval:
    def test_all_that_a_job_has_left_goes(self, tmp_path: Path) -> None:
        leave(tmp_path)
        (found,) = remove_unsent(str(tmp_path), 7)
        assert (found.files, found.size, found.state) == (2, 7, "left")
        assert os.listdir(tmp_path / "data") == []
        assert remove_unsent(str(tmp_path), 7) == []

    def test_what_a_rescue_sends_stays(self, tmp_path: Path) -> None:
        folder = leave(tmp_path)
        with (
            rescue.hold_alone(str(tmp_path), 7),
            pytest.raises(OSError, match="the data of job 7 is being sent by another rescue"),
        ):
            remove_unsent(str(tmp_path), 7)
        assert (folder / "files/a").exists()

    def test_one_that_was_cut_off_goes_on(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        leave(tmp_path)

        def cut_off(path: str, *, ignore_errors: bool = False) -> None:
            if not ignore_errors:
                raise OSError("killed")

        with monkeypatch.context() as patch:
            patch.setattr(shutil, "rmtree", cut_off)
            with pytest.raises(OSError, match="killed"):
                remove_unsent(str(tmp_path), 7)
        assert os.listdir(tmp_path / "data") == ["7.removed"] and list_unsent(str(tmp_path), 7) == []
        assert remove_unsent(str(tmp_path), 7) == []
        assert os.listdir(tmp_path / "data") == []

    def test_a_pod_s_folder_goes_and_those_above_it_where_they_are_empty(self, tmp_path: Path) -> None:
        for pod in ("0/one", "1/two"):
            leave(tmp_path / "inst-7" / pod)
        (tmp_path / "inst-8/0/other").mkdir(parents=True)
        listing = look("rm", [UnsentPlace(7, f"{tmp_path}/inst-7/*/*")])
        assert [each.size for each in listing.found] == [7, 7] and listing.errors == ()
        assert os.listdir(tmp_path) == ["inst-8"]

    def test_one_that_is_sent_keeps_no_other(self, tmp_path: Path) -> None:
        for pod in ("0/one", "0/two"):
            leave(tmp_path / "inst-7" / pod)
        with rescue.hold_alone(str(tmp_path / "inst-7/0/one"), 7):
            listing = look("rm", [UnsentPlace(7, f"{tmp_path}/inst-7/*/*")])
        assert len(listing.found) == 1 and [job for job, _ in listing.errors] == [7]
        assert os.listdir(tmp_path / "inst-7/0") == ["one"]


def test_the_folders_of_pods_that_have_left_nothing_go_with_a_rescue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path / "inst-7/0/one", "COPY")
    (tmp_path / "inst-7/1/two/data/7").mkdir(parents=True)
    (tmp_path / "inst-8/0/other").mkdir(parents=True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("{}\n"))
    assert rescue.main([str(tmp_path), "7", "inst-7/*/*"]) == 0
    assert capsys.readouterr().out == "null\n"
    assert os.listdir(tmp_path) == ["inst-8"]


def test_a_description_is_never_cut_by_a_full_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (known,) = list_folders(str(leave(tmp_path).parents[2]), 7)
    monkeypatch.setattr(json, "dump", lambda *_: (_ for _ in ()).throw(OSError(28, "full")))
    with pytest.raises(OSError, match="full"):
        known.make()
    assert [each.url for each in list_unsent(str(tmp_path), 7)] == ["s3://lab/run"]


def test_the_program_tells_what_it_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    leave(tmp_path)
    monkeypatch.setattr(
        sys, "stdin", io.StringIO(pack_places(UnsentPlace(job, str(tmp_path)) for job in (7, 8)).decode())
    )
    assert main(["ls"]) == 0
    listing = read_listing(json.loads(capsys.readouterr().out))
    assert list(listing.found) == list_unsent(str(tmp_path), 7)


def test_a_root_whose_name_has_a_star_stays(tmp_path: Path) -> None:
    root = tmp_path / "a*b" / "root"
    leave(root)
    (root / "runs").mkdir()
    listing = look("rm", [UnsentPlace(7, glob.escape(str(root)))])
    assert [each.files for each in listing.found] == [2] and not listing.errors
    assert (root / "runs").is_dir() and not (root / "data/7").exists()


def test_a_removal_that_was_cut_off_goes_on(tmp_path: Path) -> None:
    folder = leave(tmp_path)
    os.rename(folder.parent, tmp_path / "data/7.removed")
    inner = tmp_path / "data/7.removed/0123/files/in"
    inner.chmod(0o500)
    assert remove_unsent(str(tmp_path), 7) == []
    assert not (tmp_path / "data/7.removed").exists()


def test_without_the_run_directory_nothing_is_concluded(tmp_path: Path) -> None:
    root, run = tmp_path / "root", tmp_path / "root/runs/7"
    place = UnsentPlace(7, glob.escape(str(root)), str(run))
    for verb in ("ls", "rm"):
        listing = look(verb, [place])
        assert listing.found == ()
        ((job, text),) = listing.errors
        assert job == 7 and text.startswith(f"its run directory {run} is not there; is its file system mounted?")
        assert "a site that purges it looks the same" in text
    leave(root)
    assert [each.files for each in look("rm", [place]).found] == [2]
    run.mkdir(parents=True)
    assert look("rm", [place]) == ((), ())
