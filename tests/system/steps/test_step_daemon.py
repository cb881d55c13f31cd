"""The process of a step daemon that holds an allocation."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.waiting import wait_until

from overspan.bridge.runtime.core.allocation import KEY_SIZE, AllocatedNode, find_endpoint
from overspan.bridge.runtime.core.kernel import read_children
from overspan.bridge.runtime.srun import channel as wire
from overspan.bridge.runtime.srun.channel import greet

START = """
import os, sys, time
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.srun import step_daemon
read, folder = kernel.read_signalfd, sys.argv[1]
def read_late(fd):
    open(folder + "/woken", "w").close()
    while not os.path.exists(folder + "/go"):
        time.sleep(0.01)
    return read(fd)
kernel.read_signalfd = read_late
sys.exit(step_daemon.main(sys.argv[1:]))
"""
"""A step daemon that is held up between its hearing of a child's end and its look at which children have ended."""
NODE = AllocatedNode("batch", 0, "batch-0", "127.0.0.1", (), served=True)


@pytest.mark.timeout(120)
def test_what_a_client_said_counts_though_another_one_s_end_woke_the_daemon(tmp_path: Path) -> None:
    folder = tmp_path / "steps"
    folder.mkdir()
    key = os.urandom(KEY_SIZE)
    (folder / "key").write_text(key.hex())
    words = [sys.executable, "-c", START, str(tmp_path), "batch", "0", "127.0.0.1", "hold"]
    with subprocess.Popen(words) as daemon:
        try:
            wait_until(lambda: find_endpoint(str(folder), NODE), 10, "the daemon's address")
            endpoint = find_endpoint(str(folder), NODE)
            assert endpoint is not None
            channel = greet(socket.create_connection(endpoint), key, 60)
            channel.send(wire.HOLD)
            wait_until(channel.receive, 10, "the hold")
            (runner,) = read_children(daemon.pid)
            wait_until(lambda: _read_state(daemon.pid) == "S", 10, "the daemon to have heard of the hold")
            socket.create_connection(endpoint).close()
            wait_until((tmp_path / "woken").exists, 10, "the other client's end")
            channel.send(wire.RELEASE, b"7")
            wait_until(lambda: _read_state(runner) == "Z", 10, "the runner's end")
            channel.close()
            (tmp_path / "go").touch()
            assert daemon.wait(60) == 7
        finally:
            daemon.kill()


def _read_state(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
