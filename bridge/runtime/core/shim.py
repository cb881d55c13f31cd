"""The shim: one small process a node that starts the user's program and outlives it.

It writes the start durably before user code runs, passes signals on, writes the end, and kills what is left. A
supervisor that is started again finds it by its record; it never needs its parent.

    forker -- fork --> shim (session of its own, subreaper) -- fork --> gated child -- exec --> the user's program

A shim's own memory is the pages that it touches, and Python touches each object that it names. Until its program ends
it does next to nothing: the child reads what to start, prepares it and writes the start's record, and that memory is
gone with exec.
"""

from __future__ import annotations

import errno
import gc
import os
import resource  # noqa: F401  os.wait4 would import it in the forked shim, from files that may be gone by then
import signal
import time
from collections.abc import Callable
from typing import NoReturn, Optional

from overspan.bridge.runtime.core import gated_child, kernel, node_records, shim_control
from overspan.bridge.runtime.core.gated_child import NodeLaunch, StartError, StartGate
from overspan.bridge.runtime.core.node_records import NodeRecord
from overspan.bridge.runtime.core.shim_control import Shim

__all__ = ["ALL_SIGNALS", "NodeLaunch", "Tree", "detach", "fork_child", "hold", "run_shim", "spawn"]

COMM = "span-shim"
"""The name of a shim's process."""
# Descriptors above this are not in use by any supervisor.
_DESCRIPTORS = 65536
# Seconds between two rounds of killing, and until a process that cannot be killed is left (Slurm's
# UnkillableStepTimeout, slurm.conf(5)).
KILL_INTERVAL = 0.02
UNKILLABLE_TIMEOUT = 60.0
# Seconds between two tries to write the end, and until errors other than a full disk are given up.
_WRITE_INTERVAL = 0.5
_WRITE_TIMEOUT = 60.0
ALL_SIGNALS = frozenset(int(number) for number in signal.valid_signals())
PASSED = (*shim_control.FORWARDED, shim_control.KILL_ORDER)
_WATCHED = (*PASSED, int(signal.SIGCHLD))
_FULL = (errno.ENOSPC, errno.EDQUOT)


def spawn(launch: NodeLaunch) -> Shim:
    """Fork the shim that runs one node; returns at once, what happens next is in the record.

    Raises FileExistsError when the key was started before, by anyone, and OSError when it cannot be claimed or forked:
    nothing runs then. A start that fails later is in the record, or, where the disk is full, the node is UNSTARTED and
    the shim's exit status is the errno. Call it from a process of one thread.
    """
    launch = launch._replace(directory=os.path.abspath(launch.directory))
    lock = node_records.claim(launch.directory, launch.key)
    try:
        # No handler of the supervisor may run in the shim.
        mask = signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
        try:
            pid = os.fork()
            if pid == 0:
                _take_over(launch, lock)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    finally:
        os.close(lock)
    return hold(launch, pid)


def hold(launch: NodeLaunch, pid: int) -> Shim:
    """Hold a shim that was just forked. Without a pidfd it runs all the same, and its lock is watched."""
    try:
        pidfd = kernel.open_pidfd(pid)
    except OSError:
        pidfd = None
    return Shim(launch.directory, launch.key, pid, pidfd)


def _take_over(launch: NodeLaunch, lock: int) -> NoReturn:
    status = 1
    try:
        gc.disable()
        kernel.reset_signals()
        detach(lock)
        claim = node_records.name_claim(launch.directory, launch.key)
        run_shim(claim, lock, lambda gate: gated_child.run_child(launch, gate))
        status = 0
    finally:
        os._exit(status)


def detach(kept: int) -> None:
    """Close all of the parent's descriptors except `kept`, and leave its folder, so that nothing holds them."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        if null != number:
            os.dup2(null, number)
    os.closerange(3, kept)
    os.closerange(kept + 1, _DESCRIPTORS)
    os.chdir("/")


def run_shim(claim: bytes, lock: int, start: Callable[[StartGate], NoReturn], launch: int = -1) -> NoReturn:
    """Be the shim of a claimed node, whose child `start` becomes; `launch` is a descriptor for that child alone.

    To be called in a forked process that holds no other descriptors, with every signal blocked and at its default
    action.
    """
    status = 70  # EX_SOFTWARE, sysexits.h
    try:
        status = _serve(claim, lock, start, launch)
    finally:
        os._exit(status)


def _serve(claim: bytes, lock: int, start: Callable[[StartGate], NoReturn], launch: int) -> int:
    """Run the node from gate to record; gives the shim's exit status: 0, or the errno that kept the record away."""
    os.setsid()
    kernel.set_comm(COMM)
    subreaper = True
    try:
        kernel.set_subreaper()
    except OSError:
        subreaper = False
    try:
        pid, report, release = fork_child(lock, start, subreaper)
    except OSError as error:
        failure = StartError("start", f"cannot fork: {os.strerror(error.errno or 0)}", error.errno or 0)
        return record_failure(*node_records.split_claim(claim), failure, subreaper)
    if launch >= 0:
        os.close(launch)
    told = os.read(report, 1)
    if told == gated_child.READY:
        return _watch(claim, pid, report, release)
    # To the end of file, which exec gives, or the child's end.
    told += kernel.read_descriptor(report)
    _, status = os.waitpid(pid, 0)
    failure = gated_child.parse_failure(told, status)
    if failure.step == gated_child.RECORD_STEP:
        return failure.number or errno.EIO
    return record_failure(*node_records.split_claim(claim), failure, subreaper)


def fork_child(lock: int, start: Callable[[StartGate], NoReturn], subreaper: bool) -> tuple[int, int, int]:
    """Fork the gated child: its pid, the pipe that tells what it reports, the pipe that lets it go.

    `lock` is a descriptor that the child does not get, -1 where there is none.
    """
    report_reading, report_writing = os.pipe()
    release_reading, release_writing = os.pipe()
    shim = os.getpid()
    pid = os.fork()
    if pid == 0:
        try:
            # The lock is the shim's alone: with it, a child could pass for a living shim.
            for number in (lock, report_reading, release_writing):
                if number >= 0:
                    os.close(number)
            start(StartGate(shim, report_writing, release_reading, subreaper))
        finally:
            os._exit(127)
    os.close(report_writing)
    os.close(release_reading)
    return pid, report_reading, release_writing


def record_failure(directory: str, key: str, failure: StartError, subreaper: bool) -> int:
    """Put on record that a node could not be started; an errno, or 0."""
    record = node_records.make_record(os.getpid(), 0, subreaper)
    ended = gated_child.add_failure(record._replace(ended_at=round(time.time(), 6)), failure)
    try:
        try:
            os.close(node_records.begin_record(directory, key, ended))
        except FileExistsError:
            # The child was killed at the gate after it had put the start on record, or while it did.
            file = node_records.open_record(directory, key)
            node_records.update_record(file, ended)
            os.close(file)
    except OSError as error:
        return error.errno or errno.EIO
    node_records.close_record(directory, key)
    return 0


def _watch(claim: bytes, pid: int, report: int, release: int) -> int:
    """Let the child go, follow the tree to its end, and complete the record."""
    tree = _sleep(pid, release)
    tree.follow()
    told = kernel.read_descriptor(report)
    return finish(*node_records.split_claim(claim), tree, gated_child.parse_failure(told, 0) if told else None)


def finish(directory: str, key: str, tree: Tree, failure: Optional[StartError] = None) -> int:
    """Complete the record of a node whose main process has ended, and end what is left; an errno, or 0."""
    try:
        file, ended = _complete(directory, key, tree)
    except OSError as error:
        # The record cannot be reached any more; nothing is left behind all the same.
        tree.clear()
        return error.errno or errno.EIO
    if failure is not None:
        ended = gated_child.add_failure(ended, failure)
    written = _try_update(file, ended)
    killed, left = tree.clear()
    number = 0
    if killed or left or written:
        number = _insist_update(file, ended._replace(strays_killed=killed, strays_left=left))
    # The file is synced and closes with this process.
    node_records.close_record(directory, key)
    return number


def _sleep(pid: int, release: int) -> Tree:
    """Let the child go, and wait for the first signal with as little memory as can be."""
    tree: Optional[Tree] = None
    # A signal that came this early is for the child alone: what the program starts at once could be missed.
    early = signal.sigtimedwait(PASSED, 0)
    while early is not None:
        tree = tree or Tree(pid)
        tree.obey(early.si_signo)
        early = signal.sigtimedwait(PASSED, 0)
    try:
        os.write(release, gated_child.GO)
    except OSError:
        pass  # killed at the gate: its status tells
    os.close(release)
    first = signal.sigwaitinfo(_WATCHED)
    tree = tree or Tree(pid)
    tree.obey(first.si_signo)
    return tree


def _complete(directory: str, key: str, tree: Tree) -> tuple[int, NodeRecord]:
    """The start's record, with the end in it, and its open file."""
    record = node_records.read_record(directory, key)
    if record is None:
        # Its file was removed; a record of what is known now is better than none.
        record = node_records.make_record(os.getpid(), 0, True)
        return node_records.begin_record(directory, key, record), tree.conclude(record)
    return node_records.open_record(directory, key), tree.conclude(record)


def _try_update(file: int, record: NodeRecord) -> int:
    try:
        node_records.update_record(file, record)
    except OSError as error:
        return error.errno or errno.EIO
    return 0


def _insist_update(file: int, record: NodeRecord) -> int:
    """Write the end, however long the disk stays full; gives the errno of a failure that does not pass."""
    deadline = time.monotonic() + _WRITE_TIMEOUT
    while True:
        number = _try_update(file, record)
        if number == 0 or (number not in _FULL and time.monotonic() > deadline):
            return number
        time.sleep(_WRITE_INTERVAL)


class Tree:
    """Everything below the shim: the main process first, then what it leaves behind."""

    __slots__ = ("_usage", "leader", "patient", "status")

    def __init__(self, leader: int) -> None:
        self.leader = leader
        self.patient = False
        """Whether what outlives the main process is left alone until KILL."""
        self.status: Optional[int] = None
        """The main process's wait status, once it has ended."""
        self._usage: tuple[float, float, int] = (0.0, 0.0, 0)

    def follow(self) -> None:
        """Wait until the main process has ended, passing signals on."""
        while self.reap() and self.status is None:
            self.obey(signal.sigwaitinfo(_WATCHED).si_signo)

    def conclude(self, record: NodeRecord) -> NodeRecord:
        """The record, completed with the main process's end."""
        ended = shim_control.conclude(record, self.status or 0)
        user, system, memory = self._usage
        return ended._replace(user_seconds=round(user, 3), system_seconds=round(system, 3), max_rss=memory)

    def clear(self) -> tuple[int, int]:
        """Kill and reap until nothing is left below; gives how many were killed and how many could not be.

        After a SIGTERM the survivors have until the supervisor's SIGKILL.
        """
        killed: set[int] = set()
        deadline = time.monotonic() + UNKILLABLE_TIMEOUT
        while self.reap():
            if self.patient:
                self.obey(signal.sigwaitinfo(_WATCHED).si_signo)
                deadline = time.monotonic() + UNKILLABLE_TIMEOUT
                continue
            if time.monotonic() > deadline:
                return len(killed), len(kernel.list_tree(os.getpid()))
            killed.update(self.kill())
            signal.sigtimedwait({signal.SIGCHLD}, KILL_INTERVAL)
        return len(killed), 0

    def reap(self) -> bool:
        """Reap what has ended; tells whether a child is left."""
        while True:
            try:
                pid, status, usage = os.wait4(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.leader:
                self.status = status
                self._usage = (usage.ru_utime, usage.ru_stime, usage.ru_maxrss)

    def kill(self) -> tuple[int, ...]:
        """Kill what is there now; gives the pids that were reached."""
        return kernel.signal_tree(os.getpid(), signal.SIGKILL)

    def obey(self, signum: int) -> None:
        """Do what a signal to the shim asks for."""
        if signum == signal.SIGCHLD:
            return
        if signum in (shim_control.KILL_ORDER, signal.SIGKILL):
            self.patient = False
            self.kill()
            return
        if signum == signal.SIGTERM:
            self.patient = True
        kernel.signal_tree(os.getpid(), signum)
        if signum in shim_control.ENDING:
            kernel.signal_tree(os.getpid(), signal.SIGCONT)
