"""The agent's folder: private, and gone sooner or later."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from overspan.bridge.runtime.slurm.node_folders import make_folder


def test_it_is_private_and_removed_with_its_content(tmp_path: Path) -> None:
    folder = make_folder((str(tmp_path),))
    assert os.stat(folder.path).st_mode & 0o777 == 0o700
    assert os.stat(os.path.dirname(folder.path)).st_mode & 0o777 == 0o700
    Path(folder.path, "hosts").touch()
    Path(folder.path, "empty").mkdir()
    Path(folder.path, "deep", "er").mkdir(parents=True)
    Path(folder.path, "deep", "er", "file").touch()
    Path(folder.path, "link").symlink_to(tmp_path)
    folder.remove()
    assert not list(tmp_path.iterdir())


def test_what_the_last_one_removes_meanwhile_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make = os.mkdir
    removed: list[str] = []

    def make_late(path: str, mode: int = 0o777) -> None:
        parent = os.path.dirname(path)
        if "overspan-nodes" in parent and not removed:
            removed.append(parent)
            os.rmdir(parent)
        make(path, mode)

    monkeypatch.setattr(os, "mkdir", make_late)
    folder = make_folder((str(tmp_path),))
    assert removed and folder.path.startswith(str(tmp_path))
    folder.remove()


def test_what_a_killed_agent_left_goes_and_what_lives_stays(tmp_path: Path) -> None:
    killed, living = make_folder((str(tmp_path),)), make_folder((str(tmp_path),))
    Path(killed.path, "hosts").touch()
    os.close(killed.lock)
    third = make_folder((str(tmp_path),))
    assert not os.path.exists(killed.path) and os.path.exists(living.path)
    living.remove()
    third.remove()


def test_a_folder_that_is_open_to_others_is_passed_over(tmp_path: Path) -> None:
    first, second = tmp_path / "a", tmp_path / "b"
    second.mkdir()
    (first / f"overspan-nodes-{os.getuid()}").mkdir(parents=True)
    (first / f"overspan-nodes-{os.getuid()}").chmod(0o755)
    folder = make_folder((str(first), "", str(second)))
    assert folder.path.startswith(str(second))
    folder.remove()
    with pytest.raises(OSError, match="no folder of this node"):
        make_folder((str(first), str(tmp_path / "missing")))


def test_what_another_agent_sweeps_away_before_it_is_locked_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make = os.mkdir
    swept: list[str] = []

    def make_and_lose(path: str, mode: int = 0o777) -> None:
        make(path, mode)
        if "overspan-nodes" in os.path.dirname(path) and not swept:
            swept.append(path)
            os.rmdir(path)

    monkeypatch.setattr(os, "mkdir", make_and_lose)
    folder = make_folder((str(tmp_path),))
    assert swept and folder.path not in swept and os.path.isdir(folder.path)
    folder.remove()
