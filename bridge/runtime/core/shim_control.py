"""The supervisor's control of its shims: detect ends, send signals, adopt after a restart, close lost records.

A shim is known by (directory, key) and held by a pidfd. Its end means that nothing of the node is left and that the
record says how it ended, unless the shim itself was killed.
"""

from __future__ import annotations

import os
import select
import signal
import time
from collections.abc import Mapping
from typing import Optional

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel, node_records
from overspan.bridge.runtime.core.node_records import NodeRecord

# The variable in each node's environment by which what a dead shim left behind is found.
NODE_KEY = "OVERSPAN_NODE_KEY"
# The same of the worker's node, in the environment of what a pool's worker runs: it ends with the worker.
WORKER_KEY = "OVERSPAN_WORKER_KEY"

STEP_COMM = "span-step"
"""The name of the process above the ranks of a step on one node."""

# Tells a shim to kill everything below it until nothing is left.
KILL_ORDER = int(signal.SIGRTMIN)
# The shim hands these on; the others would end it, or are not seen by it. Plain numbers: signal's own are slow enums.
FORWARDED = frozenset(int(number) for number in signal.valid_signals()) - {
    int(signal.SIGKILL),
    int(signal.SIGSTOP),
    int(signal.SIGCHLD),
    int(signal.SIGPIPE),
    int(signal.SIGILL),
    int(signal.SIGTRAP),
    int(signal.SIGBUS),
    int(signal.SIGFPE),
    int(signal.SIGSEGV),
    int(signal.SIGSYS),
    KILL_ORDER,
}
# A stopped program acts on these only when it is continued.
ENDING = frozenset({int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGHUP), int(signal.SIGQUIT)})

# The states of a node that adopt() tells apart.
ABSENT = "absent"  # never claimed: may be spawned
UNSTARTED = "unstarted"  # claimed, but its shim ended before user code ran
STARTING = "starting"  # the shim lives and has not written its record yet
RUNNING = "running"  # the shim lives
ENDED = "ended"  # the record is complete and nothing is left
LOST = "lost"  # the shim was killed: settle_lost() ends the rest

# Seconds between two looks at the locks where the kernel has no pidfd.
POLL_INTERVAL = 0.1


class Shim(NamedTuple):
    """A node's shim as the supervisor holds it; `pid` 0 while not known, `pidfd` None where there is none.

    `end` is a descriptor that is closed at the other end with the node's own end, of a shim that outlives its nodes.
    """

    directory: str
    key: str
    pid: int
    pidfd: Optional[int]
    end: Optional[int] = None


class NodeStatus(NamedTuple):
    """What adopt() found: a state, the shim while it lives, the record where there is one."""

    state: str
    shim: Optional[Shim] = None
    record: Optional[NodeRecord] = None


def adopt(directory: str, key: str) -> NodeStatus:
    """Tell what became of a node, from its files and its shim; opens a pidfd when the shim lives."""
    if not node_records.is_claimed(directory, key):
        return NodeStatus(ABSENT)
    # The lock first: what the record says after the shim's end is final.
    alive = node_records.shim_alive(directory, key)
    record = node_records.read_record(directory, key)
    if record is None:
        if not alive and node_records.give_up_claim(directory, key):
            return NodeStatus(UNSTARTED)
        return NodeStatus(STARTING, Shim(directory, key, 0, None))
    if not alive:
        if record.ended and node_records.is_closed(directory, key):
            return NodeStatus(ENDED, None, record)
        return NodeStatus(LOST, None, record)
    pidfd = _open_shim(record)
    return NodeStatus(RUNNING, Shim(directory, key, record.shim_pid, pidfd), record)


def _open_shim(record: NodeRecord) -> Optional[int]:
    """Open the shim's pidfd. None on an error or if the pid was reused: the lock is watched instead."""
    try:
        pidfd = kernel.open_pidfd(record.shim_pid)
    except OSError:
        return None
    if pidfd is not None and kernel.read_start_time(record.shim_pid) != record.shim_start_time:
        os.close(pidfd)
        return None
    return pidfd


def release(shim: Shim) -> NodeStatus:
    """Take leave of a shim that has ended: reap it, close its pidfd, and read what is left to know.

    STARTING is possible for a moment, when the shim was killed just after it forked: watch its node again then.
    """
    reap(shim.pid)
    for fd in (shim.pidfd, shim.end):
        if fd is not None:
            os.close(fd)
    return adopt(shim.directory, shim.key)


def reap(pid: int) -> Optional[int]:
    """Reap one child that has ended; gives its wait status, None when it lives or is not a child of this process."""
    if pid <= 0:
        return None
    try:
        done, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return None
    return status if done else None


def reap_all() -> dict[int, int]:
    """Reap every child that has ended; gives wait statuses by pid, orphans of killed shims among them."""
    statuses: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return statuses
        if pid == 0:
            return statuses
        statuses[pid] = status


def send(shim: Shim, signum: int, scope: str = "tree") -> bool:
    """Signal a node: its main process (`leader`), all ranks of its steps (`steps`), or all below its shim (`tree`).

    False when it has ended, or has no such process.

    Signals that ask for an end are followed by SIGCONT. A SIGTERM to the tree also tells the shim to leave what
    outlives the main process alone until SIGKILL: the whole tree has the grace period, not only the main process.
    Send SIGKILL again while the shim lives: a program that it missed at its start is then found.
    """
    if scope == "leader":
        return _send_leader(shim, signum)
    if scope not in ("steps", "tree"):
        raise ValueError(f"scope is 'leader', 'steps' or 'tree', not {scope!r}")
    pid = _find_pid(shim)
    if pid == 0:
        return False
    if scope == "steps":
        reached = bool(kernel.signal_below(pid, STEP_COMM, signum))
        if signum in ENDING:
            kernel.signal_below(pid, STEP_COMM, signal.SIGCONT)
        return reached
    if signum in FORWARDED:
        return _send_shim(shim, pid, signum)
    if signum == signal.SIGKILL:
        # The shim kills until nothing is left. It may be stopped itself, so the supervisor kills too.
        reached = _send_shim(shim, pid, KILL_ORDER)
        kernel.signal_tree(pid, signal.SIGKILL)
        return _send_shim(shim, pid, signal.SIGCONT) or reached
    return bool(kernel.signal_tree(pid, signum))


def _find_pid(shim: Shim) -> int:
    if shim.pid:
        if shim.pidfd is not None or node_records.shim_alive(shim.directory, shim.key):
            return shim.pid
        return 0
    record = node_records.read_record(shim.directory, shim.key)
    return record.shim_pid if record is not None and node_records.shim_alive(shim.directory, shim.key) else 0


def _send_shim(shim: Shim, pid: int, signum: int) -> bool:
    try:
        if shim.pidfd is not None:
            kernel.send_pidfd_signal(shim.pidfd, signum)
        else:
            os.kill(pid, signum)
    except ProcessLookupError:
        return False
    return True


def _send_leader(shim: Shim, signum: int) -> bool:
    record = node_records.read_record(shim.directory, shim.key)
    leader = _find_leader(record)
    if leader is None:
        return False
    reached = kernel.signal_process(leader, signum)
    if reached and signum in ENDING:
        kernel.signal_process(leader, signal.SIGCONT)
    return reached


def _find_leader(record: Optional[NodeRecord]) -> Optional[kernel.Process]:
    if record is None or record.ended or not record.pid or record.boot_id != kernel.read_boot_id():
        return None
    leader = kernel.read_process(record.pid)
    if leader is None or leader.start_time != record.start_time or leader.state in "ZX":
        return None
    return leader


def name_node(directory: str, key: str) -> str:
    """Give the value of OVERSPAN_NODE_KEY: it tells the nodes of all jobs apart."""
    return os.path.join(os.path.realpath(directory), key)


def find_marked(mark: str) -> list[kernel.Process]:
    """List the living processes of a node, also those that a worker ran there, wherever they hang in the tree."""
    entries = {os.fsencode(f"{name}={mark}") for name in (NODE_KEY, WORKER_KEY)}
    found: list[kernel.Process] = []
    for pid in kernel.list_pids():
        if pid == os.getpid():
            continue
        try:
            marked = not entries.isdisjoint(kernel.read_file(f"/proc/{pid}/environ").split(b"\0"))
        except OSError:
            continue
        process = kernel.read_process(pid) if marked else None
        if process is not None and process.state not in "ZX":
            found.append(process)
    return found


def settle_lost(directory: str, key: str, statuses: Mapping[int, int]) -> Optional[NodeRecord]:
    """End what a killed shim left behind and complete its record; None while something still lives: call again.

    The exit code is known when the supervisor is a subreaper and the orphan came to it: it is looked up in `statuses`
    (what reap_all gave), then asked for. Otherwise the record says that the end is unknown. Raises OSError when the
    record cannot be written.
    """
    record = node_records.read_record(directory, key)
    if record is None or node_records.is_closed(directory, key):
        return record
    same_boot = record.boot_id == kernel.read_boot_id()
    if not record.ended:
        status = statuses.get(record.pid) if same_boot else None
        if status is None and same_boot:
            status = reap(record.pid)
        rest = _list_rest(directory, key, record) if same_boot else set()
        if status is None:
            record = record._replace(ended_at=round(time.time(), 6), failed_at="lost", error=_explain_loss(same_boot))
        else:
            record = conclude(record, status)
        record = record._replace(strays_killed=len(rest))
        try:
            _store(directory, key, record)
        finally:
            _kill(rest)
    rest = _list_rest(directory, key, record) if same_boot else set()
    if rest:
        _kill(rest)
        return None
    node_records.close_record(directory, key)
    return record


def conclude(record: NodeRecord, status: int) -> NodeRecord:
    """Complete a record with a wait status (wait(2)): an exit code or a signal, never both."""
    record = record._replace(ended_at=round(time.time(), 6))
    if os.WIFSIGNALED(status):
        return record._replace(signal=os.WTERMSIG(status), core_dumped=os.WCOREDUMP(status))
    return record._replace(exit_code=os.WEXITSTATUS(status))


def _explain_loss(same_boot: bool) -> str:
    if not same_boot:
        return "the machine was restarted while this ran; how it ended is unknown"
    return "the process that watched over this was killed; how it ended is unknown"


def _list_rest(directory: str, key: str, record: NodeRecord) -> set[kernel.Process]:
    """List the processes of a node run that outlive its shim."""
    rest = set(find_marked(name_node(directory, key)))
    leader = _find_leader(record)
    if leader is not None:
        rest.add(leader)
        rest.update(kernel.list_tree(leader.pid))
    return rest


def _kill(rest: set[kernel.Process]) -> None:
    for process in rest:
        kernel.signal_process(process, signal.SIGKILL)


def _store(directory: str, key: str, record: NodeRecord) -> None:
    fd = node_records.open_record(directory, key)
    try:
        node_records.update_record(fd, record)
    finally:
        os.close(fd)


class EndWatch:
    """Tells which shims have ended: by pidfd in the caller's poll object, else by their locks every 100 ms."""

    __slots__ = ("_by_fd", "_polled", "_poller")

    def __init__(self, poller: select.poll) -> None:
        self._poller = poller
        self._by_fd: dict[int, Shim] = {}
        self._polled: list[Shim] = []

    def add(self, shim: Shim) -> None:
        """Watch a shim until ended() has named it."""
        fd = shim.pidfd if shim.end is None else shim.end
        if fd is None:
            self._polled.append(shim)
        else:
            self._by_fd[fd] = shim
            self._poller.register(fd, select.POLLIN)

    @property
    def timeout(self) -> Optional[float]:
        """The longest time in seconds that the poll may wait; None when pidfds tell everything."""
        return POLL_INTERVAL if self._polled else None

    def ended(self, ready: list[int]) -> list[Shim]:
        """Name the shims that have ended, given the descriptors that poll found ready; each is named once."""
        done: list[Shim] = []
        for fd in ready:
            shim = self._by_fd.pop(fd, None)
            if shim is not None:
                self._poller.unregister(fd)
                done.append(shim)
        living: list[Shim] = []
        for shim in self._polled:
            reap(shim.pid)
            (living if node_records.shim_alive(shim.directory, shim.key) else done).append(shim)
        self._polled = living
        return done
