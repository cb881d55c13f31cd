"""Where state, socket and configuration are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from overspan.bridge.config.paths import MAX_SOCKET_PATH, find_paths, make_private_folder
from overspan.bridge.model.errors import Denied, OverspanError


def test_defaults_under_home() -> None:
    paths = find_paths({"HOME": "/home/ann"})
    assert paths.state == "/home/ann/.local/state/overspan"
    assert paths.socket == "/home/ann/.local/state/overspan/run/span.sock"
    assert paths.config == "/home/ann/.config/overspan/config.yaml"
    assert paths.site_config == "/etc/overspan/config.yaml"


def test_xdg_folders_and_relative_ones_do_not_count(tmp_path: Path) -> None:
    environment = {"HOME": "/h", "XDG_STATE_HOME": "/s", "XDG_CONFIG_HOME": "c", "XDG_RUNTIME_DIR": str(tmp_path)}
    paths = find_paths(environment)
    assert (paths.state, paths.config) == ("/s/overspan", "/h/.config/overspan/config.yaml")
    assert paths.socket == f"{tmp_path}/overspan/span.sock"
    assert find_paths({**environment, "XDG_RUNTIME_DIR": "/no/such"}).runtime == "/s/overspan/run"


def test_a_state_folder_of_its_own_has_a_socket_of_its_own(tmp_path: Path) -> None:
    environment = {"HOME": "/h", "SPAN_STATE_DIR": "/x", "XDG_RUNTIME_DIR": str(tmp_path)}
    assert find_paths(environment).socket == "/x/run/span.sock"
    assert find_paths({**environment, "SPAN_RUNTIME_DIR": "/r"}).socket == "/r/span.sock"


def test_a_socket_path_is_never_too_long() -> None:
    for length in range(60, 140):
        paths = find_paths({"HOME": "/h", "SPAN_RUNTIME_DIR": "/" + "d" * length})
        assert len(paths.socket) <= MAX_SOCKET_PATH
    assert paths.socket.startswith(f"/tmp/span-{os.geteuid()}-")


def test_private_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "open"
    folder.mkdir(mode=0o755)
    make_private_folder(str(folder))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    (tmp_path / "file").write_text("")
    with pytest.raises(OverspanError, match="cannot use the folder"):
        make_private_folder(str(tmp_path / "file" / "x"))
    monkeypatch.setattr(os, "geteuid", lambda: 12345)
    with pytest.raises(Denied, match="another user"):
        make_private_folder(str(folder))
