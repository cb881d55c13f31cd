"""Where state, socket and configuration are."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from overspan.bridge.client import Client
from overspan.bridge.config.paths import (
    MAX_SOCKET_PATH,
    find_paths,
    find_server,
    find_shared_paths,
    make_private_folder,
    make_shared_folders,
)
from overspan.bridge.model.errors import Denied, OverspanError, Unreachable


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


def test_the_shared_daemon_is_where_the_site_says(tmp_path: Path) -> None:
    site = {"HOME": "/h", "SPAN_SITE_CONFIG": str(tmp_path / "config.yaml")}

    def find(**more: str) -> str:
        environment = {**site, **more}
        return find_server(environment, find_paths(environment))

    assert find() == ""
    (tmp_path / "server").write_text("/run/overspan/span.sock\n")
    assert find() == "/run/overspan/span.sock"
    assert find(SPAN_SERVER="/other/s") == "/other/s"
    # Who wants a daemon of his own has one.
    assert find(SPAN_SERVER="") == find(SPAN_STATE_DIR="/x") == find(SPAN_RUNTIME_DIR="/r") == ""
    assert find(SPAN_STATE_DIR="/x", SPAN_SERVER="/other/s") == "/other/s"
    for text in ("", "relative\n", "\xff"):
        (tmp_path / "server").write_bytes(text.encode("latin-1"))
        assert find() == ""


def test_nobody_starts_a_shared_daemon_by_the_way(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "SPAN_SERVER": str(tmp_path / "s")}
    with Client(environment=environment) as client, pytest.raises(Unreachable, match="shared daemon does not run"):
        client.ping()
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_shared_daemon(tmp_path: Path) -> None:
    paths = find_shared_paths({})
    assert (paths.state, paths.socket) == ("/var/lib/overspan", "/run/overspan/span.sock")
    assert (paths.config, paths.site_config) == (os.devnull, "/etc/overspan/config.yaml")
    folders = {"SPAN_STATE_DIR": str(tmp_path / "state"), "SPAN_RUNTIME_DIR": str(tmp_path / "run")}
    paths = find_shared_paths(folders)
    mask = os.umask(0o077)
    try:
        make_shared_folders(paths)
    finally:
        os.umask(mask)
    modes = [stat.S_IMODE(os.stat(folder).st_mode) for folder in (paths.state, paths.runtime)]
    assert modes == [0o700, 0o755]
    os.chmod(paths.runtime, 0o777)
    with pytest.raises(Denied, match="others may write"):
        make_shared_folders(paths)
