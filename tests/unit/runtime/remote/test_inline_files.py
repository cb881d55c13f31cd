"""Files that come with a group's batch script, on one node: unpacked for a node run, linked, and gone with it."""

from __future__ import annotations

import base64
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from overspan.bridge.runtime.slurm.channel import RemoteLaunch, decode_launch, encode_launch
from overspan.bridge.runtime.slurm.inline_files import clear_links, read_inline, remove_links, unpack_inline
from overspan.bridge.runtime.slurm.node_staging import FOLDER_PLACEHOLDER, stage_launch


def pack() -> str:
    """An archive as a submission has it."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        for name, mode, data in (("0/x/run", 0o755, b"echo"), ("0/x/data", 0o644, b"all"), ("1/d", 0o644, b"one")):
            entry = tarfile.TarInfo(name)
            entry.mode, entry.size = mode, len(data)
            archive.addfile(entry, io.BytesIO(data))
        link = tarfile.TarInfo("0/x/out")
        link.type, link.linkname = tarfile.SYMTYPE, "/scratch/data"
        archive.addfile(link)
    return base64.encodebytes(file.getvalue()).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an agent."""
    path = tmp_path / f"overspan-nodes-{os.getuid()}" / "a"
    path.mkdir(parents=True)
    return path


def test_what_is_behind_the_application_is_one_text(tmp_path: Path) -> None:
    for text, found in (("\n", ""), (f"\n{pack()}", pack().replace("\n", ""))):
        (tmp_path / "script").write_text(text)
        with open(tmp_path / "script", "rb") as file:
            assert read_inline(file.fileno()) == found


def test_a_node_run_has_its_own_copies_and_starts_among_them(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "shown"
    launch = RemoteLaunch(
        "a-0",
        ("./run",),
        {},
        f"{FOLDER_PLACEHOLDER}/files/0/x",
        umask=0o027,
        mounts={"mine": f"{FOLDER_PLACEHOLDER}/files/1/d", str(target): f"{FOLDER_PLACEHOLDER}/files/0/x"},
        awaited=f"{FOLDER_PLACEHOLDER}/files/0/x/up",
        parcel="".join(pack().split()),
    )
    settled = stage_launch(decode_launch(json.loads(encode_launch(launch))["launch"]), str(folder))
    here = folder / "files" / "0" / "x"
    assert settled.cwd == str(here) and settled.awaited == f"{here}/up"
    assert (here / "mine").read_text() == "one" and (target / "data").read_text() == "all"
    assert [os.stat(here / name).st_mode & 0o777 for name in ("run", "data")] == [0o750, 0o640]
    assert os.readlink(here / "out") == "/scratch/data"
    remove_links(settled.mounts, settled.cwd, str(folder))
    assert not target.is_symlink() and not (here / "mine").is_symlink()


def test_links_that_a_killed_run_has_left_make_room_and_others_do_not(folder: Path, tmp_path: Path) -> None:
    links = {name: str(tmp_path / name) for name in ("left", "live", "foreign")}
    (folder / "there").touch()
    os.symlink(folder / "gone", links["left"])
    os.symlink(folder / "there", links["live"])
    os.symlink(tmp_path / "gone", links["foreign"])
    clear_links(dict.fromkeys(links.values(), "x"), str(tmp_path))
    assert [os.path.lexists(path) for path in links.values()] == [False, True, True]


@pytest.mark.parametrize("text", ["", "AAAA", base64.b64encode(b"no archive").decode(), pack()[:200]])
def test_what_cannot_be_unpacked_is_an_error_of_the_node(folder: Path, text: str) -> None:
    with pytest.raises(OSError, match="cannot be unpacked"):
        unpack_inline(text, str(folder), 0o022)
