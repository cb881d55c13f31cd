"""Folders of the daemon: its own, and closed to others."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from overspan.bridge.config.paths import make_private_folder
from overspan.bridge.model.errors import Denied


def mode_of(folder: Path) -> int:
    return stat.S_IMODE(folder.stat().st_mode)


@pytest.mark.parametrize("mode", [0o755, 0o750, 0o777])
def test_an_own_folder_is_closed(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    folder.chmod(mode)
    make_private_folder(str(folder))
    assert mode_of(folder) == 0o700


@pytest.mark.parametrize("mode", [0o1777, 0o1757])
def test_everybodys_folder_is_refused_and_stays_open(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "everybody"
    folder.mkdir()
    folder.chmod(mode)
    with pytest.raises(Denied, match="is open to all users") as refusal:
        make_private_folder(str(folder))
    assert "name a folder in it" in (refusal.value.remedy or "")
    assert mode_of(folder) == mode


def test_a_new_folder_is_private(tmp_path: Path) -> None:
    make_private_folder(str(tmp_path / "a" / "state"))
    assert mode_of(tmp_path / "a" / "state") == 0o700
