"""Starting the daemon on first use, with a stub in its place."""

from __future__ import annotations

import errno
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from overspan.bridge.client import Client, autostart
from overspan.bridge.config.paths import find_paths
from overspan.bridge.model.errors import StoreFailed, Unreachable

# Counts its starts, waits for a second command to arrive, then answers pings until it is killed.
_STUB = """\
import json, os, socketserver, sys, time
from overspan.bridge.config.paths import find_paths
paths = find_paths(os.environ)
with open(os.path.join(paths.state, "starts"), "a") as stream:
    stream.write(f"{os.getpid()}\\n")
class Handler(socketserver.StreamRequestHandler):
    def handle(self):
        while self.rfile.readline().strip():
            pass
        body = json.dumps({"pid": os.getpid(), "sid": os.getsid(0)}).encode()
        head = b"HTTP/1.1 200 OK\\r\\nContent-Length: %d\\r\\nConnection: close\\r\\n\\r\\n"
        self.wfile.write(head % len(body) + body)
temporary = paths.socket + ".new"
with socketserver.ThreadingUnixStreamServer(temporary, Handler) as server:
    os.rename(temporary, paths.socket)
    server.serve_forever()
"""
_PING = "from overspan import Client; print(Client().ping()['pid'])"


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """An environment whose daemon is the stub; whatever was started is killed and collected."""
    (tmp_path / "stub_daemon.py").write_text(_STUB)
    values = {**os.environ, "SPAN_STATE_DIR": str(tmp_path / "state"), "PYTHONPATH": str(tmp_path)}
    values.pop("SPAN_RUNTIME_DIR", None)
    values.pop("SPAN_AUTOSTART", None)
    monkeypatch.setattr(autostart, "MODULE", "stub_daemon")
    yield values
    starts = tmp_path / "state" / "starts"
    for line in starts.read_text().splitlines() if starts.exists() else ():
        os.kill(int(line), signal.SIGKILL)
        try:
            os.waitpid(int(line), 0)
        except ChildProcessError:
            # Started by another process.
            continue


def _started(environment: dict[str, str]) -> list[str]:
    return (Path(environment["SPAN_STATE_DIR"]) / "starts").read_text().splitlines()


def test_the_first_use_starts_it_detached_in_private_folders(environment: dict[str, str]) -> None:
    with Client(environment=environment) as client:
        facts = client.ping()
        assert client.ping()["pid"] == facts["pid"]
    assert facts["sid"] == facts["pid"]
    assert _started(environment) == [str(facts["pid"])]
    paths = find_paths(environment)
    for folder in (paths.state, paths.runtime):
        assert stat.S_IMODE(os.stat(folder).st_mode) == 0o700


def test_a_stale_socket_is_no_obstacle(environment: dict[str, str]) -> None:
    import socket

    paths = find_paths(environment)
    os.makedirs(paths.runtime, mode=0o700)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(paths.socket)
    with Client(environment=environment) as client:
        assert client.ping()["pid"]


def test_commands_that_start_at_once_start_one(environment: dict[str, str]) -> None:
    code = _PING.replace(
        "from overspan", "import overspan.bridge.client.autostart as d; d.MODULE='stub_daemon'; from overspan"
    )
    words = [sys.executable, "-c", code]
    commands = [subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) for _ in range(6)]
    answers = {command.communicate(timeout=300)[0].strip() for command in commands}
    assert answers == set(_started(environment))
    assert len(answers) == 1


def test_a_daemon_that_cannot_start_says_why(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "stub_daemon.py").write_text(
        "import sys; sys.stderr.write('noise\\nspan: error: the disk is full\\n'); sys.exit(1)"
    )
    with Client(environment=environment) as client, pytest.raises(Unreachable, match="the disk is full") as caught:
        client.ping()
    assert "daemon.log" in caught.value.remedy
    (tmp_path / "stub_daemon.py").write_text("raise SystemExit(7)")
    with Client(environment=environment) as client, pytest.raises(Unreachable, match="exit code 7"):
        client.ping()


def test_a_daemon_whose_log_takes_no_word_is_told_by_the_disk(
    environment: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "stub_daemon.py").write_text("raise SystemExit(1)")
    monkeypatch.setattr(autostart, "find_shortage", lambda folder: StoreFailed(f"{folder} is full", remedy="df"))
    with (
        Client(environment=environment) as client,
        pytest.raises(Unreachable, match=r"cannot start: .* is full") as told,
    ):
        client.ping()
    assert told.value.remedy == "df"


@pytest.mark.parametrize("name", ["daemon.start", "daemon.log"])
def test_a_disk_without_room_for_the_starts_own_files_is_named(
    environment: dict[str, str], monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    real = os.open

    def refuse(path: str, *given: int) -> int:
        if os.path.basename(path) == name:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(path, *given)

    monkeypatch.setattr(os, "open", refuse)
    with Client(environment=environment) as client, pytest.raises(Unreachable, match="cannot start: the disk of"):
        client.ping()
