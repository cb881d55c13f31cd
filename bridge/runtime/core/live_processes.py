"""Live processes of a run whose records cannot be trusted, found by their open files and their environment.

A supervisor holds the journal open for its whole life, and a shim its claim: /proc/PID/fd names the run, even after the
file was removed. Every process of a node run has OVERSPAN_NODE_KEY in its environment; one that dropped it is still
below its shim in the process tree.
"""

from __future__ import annotations

import os
import signal

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel, shim_control
from overspan.bridge.runtime.core.shim import COMM

SUPERVISOR = "span-supervisor"
"""The name of a supervisor's process; the kernel keeps 15 letters."""


class LiveProcesses(NamedTuple):
    """Live processes of a run: its supervisors, shims, and processes without a shim above them."""

    supervisors: tuple[kernel.Process, ...] = ()
    shims: tuple[kernel.Process, ...] = ()
    orphans: tuple[kernel.Process, ...] = ()


def find_live_processes(run: str) -> LiveProcesses:
    """Find the live processes of the run with that directory, which may be gone."""
    real = os.fsencode(os.path.realpath(run))
    folder = real + b"/nodes/"
    pids = [pid for pid in kernel.list_pids() if pid != os.getpid()]
    names = {pid: kernel.read_comm(pid) for pid in pids}
    above = [pid for pid in pids if names[pid] == SUPERVISOR and _holds(pid, real + b"/journal.")]
    shims = [pid for pid in pids if names[pid] == COMM and _holds(pid, folder)]
    below = {process.pid for pid in shims for process in kernel.list_tree(pid)}
    marks = tuple(os.fsencode(f"{name}=") + folder for name in (shim_control.NODE_KEY, shim_control.WORKER_KEY))
    orphans = [pid for pid in pids if pid not in below and _carries(pid, marks)]
    return LiveProcesses(_living(above), _living(shims), _living(orphans))


def end_live_processes(run: str, signum: int, signalled: set[tuple[int, int]]) -> int:
    """Send TERM or KILL to the live processes of a run; returns how many there are, not counting those below shims.

    Supervisors are killed first: they would restart what ends. The next one adopts their other launches.
    Each process gets one TERM: those `told` (pid and start) are left out, and new ones are added to them.
    """
    found = find_live_processes(run)
    for supervisor in found.supervisors:
        kernel.signal_process(supervisor, signal.SIGKILL)
    if found.supervisors:
        return len(found.supervisors) + len(found.shims) + len(found.orphans)
    for shim in found.shims:
        if signum == signal.SIGKILL:
            # The shim kills until nothing is left. It may be stopped itself, so this process kills too.
            kernel.signal_process(shim, shim_control.KILL_ORDER)
            kernel.signal_tree(shim.pid, signal.SIGKILL)
            kernel.signal_process(shim, signal.SIGCONT)
        elif _is_new(shim, signalled):
            kernel.signal_process(shim, signum)
    for orphan in found.orphans:
        if signum == signal.SIGKILL or _is_new(orphan, signalled):
            kernel.signal_process(orphan, signum)
            kernel.signal_process(orphan, signal.SIGCONT)
    return len(found.shims) + len(found.orphans)


def _is_new(process: kernel.Process, signalled: set[tuple[int, int]]) -> bool:
    known = (process.pid, process.start_time)
    if known in signalled:
        return False
    signalled.add(known)
    return True


def _living(pids: list[int]) -> tuple[kernel.Process, ...]:
    found = (kernel.read_process(pid) for pid in pids)
    return tuple(process for process in found if process is not None and process.state not in "ZX")


def _holds(pid: int, start: bytes) -> bool:
    path = f"/proc/{pid}/fd".encode()
    try:
        links = [os.readlink(os.path.join(path, name)) for name in os.listdir(path)]
    except OSError:
        return False
    return any(link.startswith(start) for link in links)


def _carries(pid: int, marks: tuple[bytes, ...]) -> bool:
    try:
        return any(entry.startswith(marks) for entry in kernel.read_file(f"/proc/{pid}/environ").split(b"\0"))
    except OSError:
        return False
