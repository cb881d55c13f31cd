"""The daemon as a process: one per state folder, clear sentences when it cannot start, nothing lost by kill -9."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.waiting import WaitUntil

PATIENCE = 120.0
"""Seconds for what ends sooner on every machine that is only slow."""
HELD = {"kind": "script", "text": "#!/bin/sh\n#SBATCH --hold\ntrue\n", "file": "a.sh", "argv": ["a.sh"], "user": "me"}


class Connection(http.client.HTTPConnection):
    """HTTP over a unix socket."""

    def __init__(self, path: Path) -> None:
        super().__init__("span", timeout=PATIENCE)
        self.path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


class Daemons:
    """Daemons of one state folder."""

    def __init__(self, folder: Path, wait_until: WaitUntil) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.socket = self.state / "run" / "span.sock"
        self.wait_until = wait_until
        self.processes: list[subprocess.Popen[str]] = []

    def launch(self) -> subprocess.Popen[str]:
        """Start a daemon, which may fail."""
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("SPAN_", "XDG_"))},
            "SPAN_STATE_DIR": str(self.state),
            "SPAN_CONFIG": str(self.folder / "config.yaml"),
            "SPAN_SITE_CONFIG": str(self.folder / "site.yaml"),
        }
        command = [sys.executable, "-m", "overspan.bridge.api"]
        process = subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True, cwd="/")
        self.processes.append(process)
        return process

    def start(self) -> subprocess.Popen[str]:
        """Start a daemon and wait until it answers."""
        process = self.launch()
        self.wait_until(lambda: self.ask("GET", "/v1/ping").get("pid") == process.pid, 20, "the daemon answers")
        return process

    def ask(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """One request; an empty answer when nobody listens."""
        connection = Connection(self.socket)
        try:
            content = None if body is None else json.dumps(body)
            connection.request(method, path, content, {"content-type": "application/json"})
            answer: dict[str, Any] = json.loads(connection.getresponse().read())
            return answer
        except OSError:
            return {}
        finally:
            connection.close()

    def fail(self) -> str:
        """Start a daemon that cannot work; its last words."""
        process = self.launch()
        _, words = process.communicate(timeout=PATIENCE)
        assert process.returncode == 1 and "Traceback" not in words
        return words

    def close(self) -> None:
        for process in self.processes:
            if process.poll() is None:
                process.kill()
            process.wait()
            if process.stderr is not None:
                process.stderr.close()


def list_modes(folder: Path) -> list[int]:
    """The rights of everything in a folder whose owner may renew a file of it meanwhile."""
    modes = []
    for path in folder.iterdir():
        with contextlib.suppress(FileNotFoundError):
            modes.append(stat.S_IMODE(path.stat().st_mode))
    return modes


@pytest.fixture
def daemons(tmp_path: Path, wait_until: WaitUntil) -> Iterator[Daemons]:
    daemons = Daemons(tmp_path, wait_until)
    yield daemons
    daemons.close()


def test_one_daemon_a_state_folder_and_private_folders(daemons: Daemons) -> None:
    first = daemons.start()
    words = daemons.fail()
    assert words.startswith("span: error: another daemon holds this state folder") and f"pid {first.pid} " in words
    assert words.count("\n") == 1
    assert stat.S_IMODE(daemons.socket.stat().st_mode) == 0o600
    for folder in (daemons.state, daemons.socket.parent):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    modes = list_modes(daemons.state)
    assert modes and all(mode & 0o077 == 0 for mode in modes)
    assert daemons.ask("POST", "/v1/shutdown", {}) == {"format": 1}
    assert first.wait(PATIENCE) == 0 and not daemons.socket.exists()
    records = [json.loads(line) for line in (daemons.state / "daemon.log").read_text().splitlines()]
    assert records[-1]["message"] == "the daemon has ended; jobs go on"


def test_two_that_start_at_once(daemons: Daemons) -> None:
    both = [daemons.launch(), daemons.launch()]
    daemons.wait_until(lambda: any(process.poll() is not None for process in both), 20, "one gives way")
    winner = next(process for process in both if process.poll() is None)
    daemons.wait_until(lambda: daemons.ask("GET", "/v1/ping").get("pid") == winner.pid, 20, "the other answers")
    loser = next(process for process in both if process is not winner)
    assert loser.returncode == 1 and "another daemon" in loser.communicate()[1]


def test_nothing_is_lost_by_kill_9(daemons: Daemons) -> None:
    first = daemons.start()
    assert daemons.ask("POST", "/v1/jobs", HELD)["id"] == 1
    seen = daemons.ask("GET", "/v1/queue")["rows"]
    first.kill()
    first.wait()
    assert daemons.socket.exists()
    second = daemons.start()
    assert daemons.ask("GET", "/v1/queue")["rows"] == seen
    assert daemons.ask("POST", "/v1/jobs", HELD)["id"] == 2
    second.send_signal(signal.SIGTERM)
    assert second.wait(PATIENCE) == 0


def test_a_wrong_configuration_is_one_line_with_its_place(daemons: Daemons) -> None:
    (daemons.folder / "config.yaml").write_text("retention: 5d\ndefault_clutser: x\n")
    place = f"{daemons.folder}/config.yaml:2:1"
    sentence = "unknown key 'default_clutser'; did you mean 'default_cluster'? known keys: clusters, default_cluster,"
    assert daemons.fail().startswith(f"span: error: {place}: {sentence}")


def test_a_state_folder_that_cannot_be_written(daemons: Daemons) -> None:
    daemons.state.write_text("a file where the folder should be")
    assert daemons.fail().startswith(f"span: error: cannot use the folder {daemons.state}")


def test_a_database_that_is_none(daemons: Daemons) -> None:
    daemons.state.mkdir(mode=0o700)
    (daemons.state / "overspan.db").write_text("this is no database, and long enough to be read as one" * 100)
    words = daemons.fail()
    assert words.startswith("span: error: ") and "overspan.db" in words


def test_an_idle_daemon_is_small(daemons: Daemons) -> None:
    process = daemons.start()
    maps = Path(f"/proc/{process.pid}/status").read_text()
    resident = next(int(line.split()[1]) for line in maps.splitlines() if line.startswith("VmRSS"))
    assert resident < 100_000
    assert daemons.ask("GET", "/v1/clusters")["clusters"][0]["state"] == "up"
