"""The supervisor process: one poll loop for all launches of its host directory.

    lock         held by flock while it lives; says who it is
    inbox.jsonl  {"run": DIRECTORY, "launch": R}: the launches to supervise
    log          what went wrong
    urgent       FIFO: orders that cannot be written to their file while a disk is full

SIGUSR1 means that the inbox or an orders file has new lines. It is a hint: both are read every second anyway.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from collections.abc import Sequence
from typing import NoReturn, Optional

from overspan.bridge.model.events import Granted
from overspan.bridge.model.job import Job
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.clock_jumps import JumpDetector
from overspan.bridge.runtime.core.forker import Forker
from overspan.bridge.runtime.core.isolation import ENV, Isolation, IsolationProbe, probe
from overspan.bridge.runtime.core.live_processes import SUPERVISOR
from overspan.bridge.runtime.core.loss_records import (
    LONG_PATIENCE,
    PATIENCE,
    Loss,
    is_damage,
    name_loss,
    word_damage,
    write_loss,
)
from overspan.bridge.runtime.core.node_runs import NodeRuns
from overspan.bridge.runtime.core.orders import URGENT, read_urgent
from overspan.bridge.runtime.core.run_directory import RunDirectory, RunPlan
from overspan.bridge.runtime.core.shim_control import EndWatch, Shim, reap_all
from overspan.bridge.runtime.core.shortages import EX_TEMPFAIL, is_shortage
from overspan.bridge.runtime.core.supervised_launch import Services, SupervisedLaunch
from overspan.bridge.runtime.local.nodes import LocalNodeRuns, NodeRunSettings, isolate_launch

LOOK_SECONDS = 1.0
IDLE_SECONDS = 30.0


class Supervisor:
    """All launches of one host directory."""

    def __init__(self, path: str, lock: int, forker: Forker) -> None:
        self.path = path
        self._lock = lock
        self._wake_path = os.path.join(os.path.dirname(os.path.dirname(path)), "wake")
        self._poller = select.poll()
        self._ends = EndWatch(self._poller)
        self._runs: dict[tuple[str, int], SupervisedLaunch] = {}
        self._due: dict[tuple[str, int], Optional[float]] = {}
        """When the next iteration of each launch is due without a wake-up; None if only a wake-up can bring one."""
        self._looked_at = 0.0
        self._postponed: list[tuple[str, int]] = []
        self._failing: dict[tuple[str, int], float] = {}
        """Since when every iteration of a launch has failed."""
        self._inbox = b""
        """The bytes of the inbox that were read."""
        self._probe: Optional[IsolationProbe] = None
        self._idle_since = time.time()
        self._clock = JumpDetector()
        self._forker = forker
        self._services = Services(_read_grant, self._open_nodes, self._wake)

    def serve(self) -> None:
        """Run until no launch is left."""
        wakeup, wakeup_in = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup_in, warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, lambda number, frame: None)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})
        self._poller.register(wakeup, select.POLLIN)
        urgent = _open_fifo(os.path.join(self.path, URGENT))
        if urgent >= 0:
            self._poller.register(urgent, select.POLLIN)
        ended: list[Shim] = []
        ready: list[int] = []
        while True:
            jump = self._clock.take_jump()
            now = time.time()
            if jump:
                self._move_clock(jump, now)
            # After the jump is handled: a launch that was granted by the new clock must not be moved.
            self._read_inbox(now)
            ended = self._ends.ended(ready)
            told = urgent in ready and self._read_urgent(urgent)
            self._advance_launches(ended, now, told or wakeup in ready or not 0 <= now - self._looked_at < LOOK_SECONDS)
            if self._displaced() or (not self._runs and not self._postponed and self._may_leave(now)):
                return
            ready = [fd for fd, _ in self._poller.poll(self._timeout(time.time()) * 1000)]
            if wakeup in ready:
                _drain(wakeup)

    def _move_clock(self, seconds: float, now: float) -> None:
        """The machine's clock was set by that many seconds: move all due times along with it."""
        self._idle_since += seconds
        self._failing = {name: since + seconds for name, since in self._failing.items()}
        for name, run in self._runs.items():
            run.move_clock(seconds, now)
            self._due[name] = now

    def _advance_launches(self, ended: list[Shim], now: float, all_launches: bool) -> None:
        """Run an iteration of the launches that have ends or are due, or of all where there may be orders."""
        if all_launches:
            self._looked_at = now
        by_folder: dict[str, list[Shim]] = {}
        for shim in ended:
            by_folder.setdefault(shim.directory, []).append(shim)
        for name, run in list(self._runs.items()):
            shims, due = by_folder.get(run.nodes_folder, []), self._due[name]
            if not (shims or all_launches or (due is not None and due <= now)):
                continue
            try:
                if all_launches:
                    run.check()
                run.advance(shims, now)
                self._due[name] = run.wake_at(now)
            except Exception as error:
                # An error in one launch must not end the others; it is opened again from its journal.
                if name not in self._failing:
                    self.log(f"{name[0]} launch {name[1]}: {_word_exception()}")
                run.close()
                del self._runs[name], self._due[name]
                self._postpone(name, error, now)
                continue
            self._failing.pop(name, None)
            if run.done:
                run.close()
                del self._runs[name], self._due[name]
                self._idle_since = now
        if not self._runs:
            # Orphans of killed shims became children of this subreaper: reap them.
            reap_all()

    def _timeout(self, now: float) -> float:
        """Seconds until the next look."""
        waits = [min(LOOK_SECONDS, max(0.001, self._looked_at + LOOK_SECONDS - now))]
        if self._ends.timeout is not None:
            waits.append(self._ends.timeout)
        for name in self._runs:
            due = self._due[name]
            if due is not None:
                waits.append(max(0.001, due - now))
        return min(waits)

    def _read_urgent(self, fifo: int) -> bool:
        """Pass on orders from the FIFO; returns whether there were any."""
        orders = read_urgent(_drain(fifo))
        for order in orders:
            run = self._runs.get((order.run, order.launch))
            if run is not None:
                run.obey(order.token, order.event)
        return bool(orders)

    def _read_inbox(self, now: float) -> None:
        names, self._postponed = self._postponed, []
        for line in self._read_lines():
            try:
                entry = json.loads(line)
                names.append((str(entry["run"]), int(entry["launch"])))
            except (ValueError, KeyError, TypeError):
                self.log(f"inbox.jsonl has a line that is no launch: {line!r}")
        for name in names:
            if name not in self._runs:
                self._open(name, now)

    def _read_lines(self) -> list[bytes]:
        try:
            with open(os.path.join(self.path, "inbox.jsonl"), "rb") as file:
                data = file.read()
        except FileNotFoundError:
            return []
        if not data.startswith(self._inbox):
            # Begun anew, by a daemon that had not found this supervisor; each launch is in it once.
            self._inbox = b""
        lines = data[len(self._inbox) : data.rfind(b"\n") + 1]
        self._inbox += lines
        return lines.splitlines()

    def _open(self, name: tuple[str, int], now: float) -> None:
        if os.path.lexists(self._name_loss(name)):
            # The daemon ends this launch; its files count no longer.
            self._failing.pop(name, None)
            return
        try:
            run = SupervisedLaunch(RunDirectory(*name), self._services, now)
        except Exception as error:
            if name not in self._failing and not is_shortage(error):
                self.log(f"cannot look after {name[0]} launch {name[1]}: {error!r}")
            self._postpone(name, error, now)
            return
        if run.done:
            self._failing.pop(name, None)
            run.close()
        else:
            self._runs[name] = run
            self._due[name] = now

    def _postpone(self, name: tuple[str, int], error: Exception, now: float) -> None:
        """Retry a launch in a moment. One whose files stay damaged is given up: the daemon ends it."""
        if is_shortage(error):
            self._failing.pop(name, None)
        elif now - self._failing.setdefault(name, now) >= (PATIENCE if is_damage(error) else LONG_PATIENCE):
            path = self._name_loss(name)
            try:
                write_loss(path, Loss(now, word_damage(error)))
            except OSError:
                # Retried until there is space.
                self._postponed.append(name)
                return
            del self._failing[name]
            self._idle_since = now
            self._wake(os.path.basename(path))
            return
        self._postponed.append(name)

    def _name_loss(self, name: tuple[str, int]) -> str:
        return name_loss(os.path.dirname(self._wake_path), *name)

    def _displaced(self) -> bool:
        """Whether the host directory was removed, or made anew for another supervisor."""
        held = os.fstat(self._lock)
        try:
            there = os.stat(os.path.join(self.path, "lock"))
        except OSError:
            return True
        return (there.st_dev, there.st_ino) != (held.st_dev, held.st_ino)

    def _may_leave(self, now: float) -> bool:
        """Whether to exit: the whole inbox is served, no daemon is writing to it, and a shared host was idle."""
        shared = os.path.exists(os.path.join(self.path, "shared"))
        if shared and now - self._idle_since < IDLE_SECONDS:
            return False
        try:
            inbox = os.open(os.path.join(self.path, "inbox.jsonl"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            return True
        try:
            fcntl.flock(inbox, fcntl.LOCK_EX)
            if os.fstat(inbox).st_size != len(self._inbox):
                return False
            # The daemon takes the same lock before it writes, and then sees that this supervisor is gone.
            with open(os.path.join(self.path, "ended"), "w", encoding="utf-8"):
                return True
        except OSError:
            # A full disk: the daemon could not see that this supervisor is gone.
            return False
        finally:
            os.close(inbox)

    def _open_nodes(self, directory: RunDirectory, plan: RunPlan, job: Job) -> NodeRuns:
        isolation = self._isolate(directory, job)
        return LocalNodeRuns(
            NodeRunSettings(directory, plan.cluster, isolation, plan.environment, self._forker.spawn, self._ends.add)
        )

    def _isolate(self, directory: RunDirectory, job: Job) -> Isolation:
        if directory.read_grant().isolation == ENV:
            return Isolation()
        return isolate_launch(directory, job, self._probe_once)

    def _probe_once(self) -> IsolationProbe:
        if self._probe is None:
            self._probe = probe()
        return self._probe

    def _wake(self, text: str) -> None:
        """Notify the daemon, if one listens."""
        try:
            fd = os.open(self._wake_path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return
        try:
            os.write(fd, f"{text}\n".encode())
        except OSError as error:
            if error.errno not in (errno.EAGAIN, errno.EPIPE):
                raise
        finally:
            os.close(fd)

    def log(self, text: str) -> None:
        """Write a line to the host's log; never fails."""
        try:
            with open(os.path.join(self.path, "log"), "a", encoding="utf-8") as file:
                file.write(f"{time.strftime('%Y-%m-%dT%H:%M:%S')} {text}\n")
        except OSError:
            pass


def _word_exception() -> str:
    """The traceback of the exception that is being handled."""
    # Not at the top: it costs each start 2 ms, and only errors need it.
    import traceback

    return traceback.format_exc()


def _read_grant(directory: RunDirectory) -> Granted:
    return directory.read_grant().event()


def _drain(fd: int) -> bytes:
    parts = []
    try:
        while part := os.read(fd, 65536):
            parts.append(part)
    except BlockingIOError:
        pass
    return b"".join(parts)


def _open_fifo(path: str) -> int:
    """Open a FIFO for both directions, so that it has no end of file; creates it if missing. -1 on an error."""
    try:
        try:
            os.mkfifo(path, 0o600)
        except FileExistsError:
            pass
        return os.open(path, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return -1


def _lock(path: str) -> Optional[int]:
    """Take the host's lock and say who holds it; None when another process has it."""
    fd = os.open(os.path.join(path, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(fd)
        return None
    pid = os.getpid()
    holder = {"pid": pid, "start_time": kernel.read_start_time(pid), "boot_id": kernel.read_boot_id()}
    os.ftruncate(fd, 0)
    os.pwrite(fd, json.dumps(holder).encode(), 0)
    return fd


def main(words: Sequence[str]) -> NoReturn:
    """Serve the host directory named on the command line, as `serve` does, and exit with what it gives."""
    status = serve(words[0])
    sys.stderr.flush()
    # To take the interpreter down would copy most pages that the forker shares.
    os._exit(status)


def serve(path: str) -> int:
    """Serve a host directory with the whole process; 0 at the end, 1 when another process serves it."""
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    os.umask(0o077)
    path = os.path.abspath(path)
    try:
        # Before the lock, which is the supervisor's alone, and before there is anything to copy.
        forker = Forker()
        lock = _lock(path)
    except OSError as error:
        if not is_shortage(error):
            raise
        return EX_TEMPFAIL
    if lock is None:
        return 1
    kernel.set_comm(SUPERVISOR)
    try:
        kernel.set_subreaper()
    except OSError:
        # Without it only the exit codes of orphans are lost.
        pass
    host = Supervisor(path, lock, forker)
    try:
        host.serve()
    except Exception as error:
        host.log(_word_exception())
        return EX_TEMPFAIL if is_shortage(error) else 70
    return 0
