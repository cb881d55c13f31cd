"""The socket of the daemon: who can reach it, and what is in its way."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from overspan.bridge.api.server import bind_socket, remove_socket
from overspan.bridge.model.errors import Conflict, OverspanError


def test_only_the_owner_can_connect(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with bind_socket(str(path)):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_dead_daemons_socket_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    bind_socket(path).close()
    assert os.path.exists(path)
    bind_socket(path).close()


def test_a_socket_that_answers_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with bind_socket(path):
        with pytest.raises(Conflict, match="another state folder"):
            bind_socket(path)
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(path)


def test_a_file_in_the_way_is_no_socket(tmp_path: Path) -> None:
    (tmp_path / "s").write_text("precious")
    with pytest.raises(OverspanError, match="is no socket"):
        bind_socket(str(tmp_path / "s"))
    assert (tmp_path / "s").read_text() == "precious"


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(OverspanError, match="cannot listen"):
        bind_socket(str(tmp_path / "none" / "s"))


def test_another_daemons_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with bind_socket(str(path)):
        remove_socket(str(path), path.stat().st_ino + 1)
        assert path.exists()
        remove_socket(str(path), path.stat().st_ino)
        assert not path.exists()
