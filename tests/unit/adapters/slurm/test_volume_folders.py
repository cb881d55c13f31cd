"""Volumes of a Slurm cluster: folders below its root, by a shell on the login node."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from overspan.adapters.slurm.files.volumes import SlurmVolumes
from overspan.adapters.slurm.transports.local import LocalTransport
from overspan.adapters.volume_folders import VolumeFolders
from overspan.bridge.model.errors import Conflict, NotFound
from overspan.bridge.model.volumes import VolumeRequest


def open_volumes(root: str) -> SlurmVolumes:
    return SlurmVolumes(LocalTransport(), root, 20.0)


@pytest.mark.parametrize("below_home", [False, True])
def test_folders_are_made_listed_and_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below_home: bool) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    root = tmp_path / ("a root" if not below_home else ".overspan")
    volumes = open_volumes("" if below_home else str(root))
    assert asyncio.run(volumes.list()) == []
    made = asyncio.run(volumes.apply(VolumeRequest("ckpts", 100)))
    assert made.done == "made" and made.notes == ("the size has no effect: the volume is a folder",)
    assert asyncio.run(volumes.apply(VolumeRequest("ckpts"))).done == "unchanged"
    folder = root / "volumes/ckpts"
    assert folder.stat().st_mode & 0o777 == 0o700
    (folder / "deep").mkdir()
    (folder / "deep/file").touch()
    assert [(each.name, each.kind, each.status) for each in asyncio.run(volumes.list())] == [
        ("ckpts", "folder", "Ready")
    ]
    asyncio.run(volumes.delete("ckpts"))
    assert not folder.exists()
    with pytest.raises(NotFound, match="there is no volume ckpts"):
        asyncio.run(volumes.delete("ckpts"))


@pytest.mark.parametrize("over_shell", [False, True])
def test_what_a_link_leads_to_stays(tmp_path: Path, over_shell: bool) -> None:
    (tmp_path / "disk").mkdir()
    (tmp_path / "disk/data").touch()
    (tmp_path / "volumes").mkdir()
    (tmp_path / "volumes/big").symlink_to(tmp_path / "disk")
    volumes = open_volumes(str(tmp_path)) if over_shell else VolumeFolders(str(tmp_path / "volumes"))
    assert [each.name for each in asyncio.run(volumes.list())] == ["big"]
    assert asyncio.run(volumes.apply(VolumeRequest("big"))).done == "unchanged"
    asyncio.run(volumes.delete("big"))
    assert (tmp_path / "disk/data").exists() and not (tmp_path / "volumes/big").is_symlink()


def test_a_root_that_takes_no_folder_is_told(tmp_path: Path) -> None:
    (tmp_path / "volumes").touch()
    with pytest.raises(Conflict, match="the login node could not make the volume ckpts"):
        asyncio.run(open_volumes(str(tmp_path)).apply(VolumeRequest("ckpts")))
