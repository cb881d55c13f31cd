"""Leaves nothing behind of a local cluster that a test has used."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.local.forkserver import COMM


def list_supervisors(root: Path) -> list[kernel.Process]:
    """The living supervisors of a cluster, by their locks."""
    found = []
    for lock in root.glob("hosts/*/lock"):
        try:
            holder = json.loads(lock.read_text())
        except (OSError, ValueError):
            continue
        process = kernel.read_process(holder["pid"])
        if process is not None and process.start_time == holder["start_time"] and process.state not in "ZX":
            found.append(process)
    return found


def list_started(root: Path) -> list[kernel.Process]:
    """Living supervisors and shims, by their command lines: a supervisor that has just begun has no lock yet."""
    hosts = os.fsencode(root / "hosts") + b"/"
    found = []
    for pid in kernel.list_pids():
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        process = kernel.read_process(pid)
        if process is not None and process.state not in "ZX" and any(word.startswith(hosts) for word in words):
            found.append(process)
    return found


def list_fork_servers(root: Path) -> list[kernel.Process]:
    """The living processes that supervisors of a cluster are forked from."""
    return [process for process in list_started(root) if kernel.read_comm(process.pid) == COMM]


def end_supervisors(root: Path) -> None:
    """Kill the supervisors of a cluster and everything below them, and wait until they are gone."""
    deadline = time.monotonic() + 300
    while started := list_started(root):
        assert time.monotonic() < deadline, "supervisors do not end"
        for process in started:
            kernel.signal_tree(process.pid, signal.SIGKILL)
            kernel.signal_process(process, signal.SIGKILL)
            reap(process.pid)
        time.sleep(0.01)


def reap(pid: int) -> None:
    """Wait for a killed child of this process."""
    try:
        os.waitpid(pid, 0)
    except ChildProcessError:
        pass
