"""What a new supervisor makes of the nodes of an old one, and of shims that were killed."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from overspan.bridge.runtime.core import kernel, node_records, shim_control
from overspan.bridge.runtime.core.node_records import NodeRecord
from overspan.bridge.runtime.core.shim import spawn
from overspan.bridge.runtime.core.shim_control import EndWatch, Shim, adopt, send

if TYPE_CHECKING:
    from tests.system.runtime.conftest import Forked, Nodes

KEY = "trainer.0.0.0"


def _state(pid: int) -> str:
    process = kernel.read_process(pid)
    return process.state if process is not None else ""


def test_key_starts_once(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "echo ran >> runs")
    with pytest.raises(FileExistsError):
        spawn(nodes.launch(KEY, "sh", "-c", "echo ran >> runs"))
    nodes.end(shim)
    with pytest.raises(FileExistsError):
        spawn(nodes.launch(KEY, "sh", "-c", "echo ran >> runs"))
    assert nodes.text("runs") == "ran\n"


def test_states_of_a_node(nodes: Nodes) -> None:
    assert adopt(nodes.directory, KEY).state == shim_control.ABSENT
    lock = node_records.claim(nodes.directory, "held")
    assert adopt(nodes.directory, "held").state == shim_control.STARTING
    os.close(lock)
    assert adopt(nodes.directory, "held").state == shim_control.UNSTARTED
    shim = nodes.shell(KEY, "sleep 300")
    record = nodes.running(KEY)
    node = adopt(nodes.directory, KEY)
    assert node.shim is not None and node.shim.pidfd is not None
    os.close(node.shim.pidfd)
    assert (node.state, node.shim.pid, node.record) == (shim_control.RUNNING, shim.pid, record)
    send(shim, signal.SIGTERM)
    nodes.end(shim)


def test_shim_killed_at_the_gate_starts_nothing(nodes: Nodes) -> None:
    os.mkfifo(nodes.folder / "data")
    shim = nodes.shell(KEY, "touch ran", stdin="data")
    child = nodes.wait_until(lambda: kernel.read_children(shim.pid), what="the gated child")[0]
    start_time = kernel.read_start_time(child)
    try:
        os.kill(shim.pid, signal.SIGKILL)
        nodes.leave(shim)
        # The child drops its copy of the lock first thing; killed in between, the shim seems to live until then.
        nodes.wait_until(lambda: adopt(nodes.directory, KEY).state == shim_control.UNSTARTED, what="the lock is free")
    finally:
        # The child hangs in the open of its input; now it goes on, and finds nobody at the gate.
        with open(nodes.folder / "data", "r+b", buffering=0):
            nodes.wait_until(lambda: _has_left(child, start_time), what="the child has left")
    assert not (nodes.folder / "ran").exists()


def _has_left(pid: int, start_time: int) -> bool:
    process = kernel.read_process(pid)
    return process is None or process.start_time != start_time or process.state == "Z"


def test_shim_killed_ends_the_rest_and_guesses_nothing(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "(setsid sleep 300 &); sleep 300 & wait")
    nodes.wait_until(lambda: len(nodes.sleepers(KEY)) == 2, what="all up")
    os.kill(shim.pid, signal.SIGKILL)
    node = nodes.leave(shim)
    assert node.state == shim_control.LOST and nodes.marked(KEY)
    record = nodes.settle(KEY)
    assert (record.exit_code, record.signal, record.failed_at) == (None, None, "lost")
    assert "unknown" in record.error and record.strays_killed >= 3
    assert nodes.marked(KEY) == []
    assert adopt(nodes.directory, KEY) == shim_control.NodeStatus(shim_control.ENDED, None, record)


def test_subreaper_learns_the_orphans_code(nodes: Nodes, forked: Forked) -> None:
    def run() -> None:
        kernel.set_subreaper()
        shim = nodes.shell(KEY, "while [ ! -e go ]; do sleep 0.02; done; exit 7")
        record = nodes.running(KEY)
        os.kill(shim.pid, signal.SIGKILL)
        assert nodes.leave(shim).state == shim_control.LOST
        (nodes.folder / "go").touch()
        nodes.wait_until(lambda: _state(record.pid) == "Z", what="the orphan ends")
        settled = nodes.settle(KEY)
        assert (settled.exit_code, settled.error) == (7, "")

    forked(run)


def test_lost_record_of_another_boot_kills_nobody(nodes: Nodes) -> None:
    bystander = subprocess.Popen(["sleep", "300"])
    try:
        os.close(node_records.claim(nodes.directory, KEY))
        start_time = kernel.read_start_time(bystander.pid)
        record = NodeRecord(bystander.pid, 1, 1, "another", start_time, started_at=1.0)
        os.close(node_records.begin_record(nodes.directory, KEY, record))
        assert adopt(nodes.directory, KEY).state == shim_control.LOST
        assert "restarted" in nodes.settle(KEY).error
        # The same boot, and a pid that is now another process's.
        boot = kernel.read_boot_id()
        os.close(node_records.claim(nodes.directory, "other"))
        record = record._replace(boot_id=boot, start_time=start_time - 1)
        os.close(node_records.begin_record(nodes.directory, "other", record))
        assert not send(Shim(nodes.directory, "other", 0, None), signal.SIGKILL, "leader")
        assert nodes.settle("other").failed_at == "lost"
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()


SUPERVISOR = """
import os, sys
from overspan.bridge.runtime.core.shim import NodeLaunch, spawn
folder, count = sys.argv[1], int(sys.argv[2])
for number in range(count):
    script = "while [ ! -e {0} ]; do sleep 0.05; done; exit {1}".format("go" if number % 2 else "early", number)
    spawn(NodeLaunch(folder, "n.{0}.0.0".format(number), ("sh", "-c", script), dict(os.environ), folder))
print("ready", flush=True)
sys.stdin.read()
"""


def _has_ended(nodes: Nodes, key: str) -> bool:
    """Whether a node's shim is gone too, which lives for a moment after it has closed the record."""
    return node_records.is_closed(nodes.directory, key) and not node_records.shim_alive(nodes.directory, key)


def test_supervisor_killed_and_started_again(nodes: Nodes) -> None:
    count = 20
    keys = [f"n.{number}.0.0" for number in range(count)]
    nodes.adopt_keys(keys)
    command = [sys.executable, "-c", SUPERVISOR, nodes.directory, str(count)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        assert supervisor.stdout.readline() == "ready\n"
        for key in keys:
            nodes.running(key)
        supervisor.kill()
    (nodes.folder / "early").touch()
    nodes.wait_until(lambda: all(_has_ended(nodes, key) for key in keys[::2]), what="half ended")
    watch = EndWatch(poller := select.poll())
    codes: dict[str, int | None] = {}
    for key in keys:
        node = adopt(nodes.directory, key)
        if node.state == shim_control.RUNNING:
            assert node.shim is not None
            watch.add(node.shim)
        elif node.state == shim_control.ENDED:
            assert node.record is not None
            codes[key] = node.record.exit_code
        with pytest.raises(FileExistsError):
            spawn(nodes.launch(key, "false"))
    assert sorted(codes) == sorted(keys[::2])
    (nodes.folder / "go").touch()
    while len(codes) < count:
        assert watch.timeout is None
        ready = [fd for fd, _ in poller.poll(120_000)]
        assert ready, "no shim ended"
        for shim in watch.ended(ready):
            codes[shim.key] = nodes.end(shim).exit_code
    assert codes == {key: number for number, key in enumerate(keys)}


def test_ends_are_seen_without_pidfds(nodes: Nodes) -> None:
    shim = nodes.shell(KEY, "exit 2")
    assert shim.pidfd is not None
    os.close(shim.pidfd)
    watch = EndWatch(select.poll())
    watch.add(shim._replace(pidfd=None))
    assert watch.timeout == shim_control.POLL_INTERVAL
    done = nodes.wait_until(lambda: watch.ended([]), what="the end is seen")
    assert [found.key for found in done] == [KEY] and watch.timeout is None
    node = shim_control.release(done[0])
    assert node.record is not None and node.record.exit_code == 2
