"""Starts, watches and restarts supervisors, and finds those of an earlier daemon.

Single jobs share a supervisor, and so do a few groups. Each serves a folder ROOT/hosts/NAME:

    lock          locked by flock while the supervisor lives; contains its pid, start time and boot id
    inbox.jsonl   the launches to serve; appended under a flock on the file
    log           its stderr
    urgent        FIFO for orders that end work while nothing can be written
    shared        if it exists, an idle supervisor stays for a while

Supervisors are forked from a fork server, and outlive it and the daemon. SIGUSR1 wakes them for new lines; it is
blocked before they start.
"""

from __future__ import annotations

import asyncio
import fcntl
import json
import logging
import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from overspan.adapters.local.files.launch_files import LaunchFiles, find_end, read_document, remove, write_at
from overspan.adapters.local.supervisors.forkserver import Forked, ForkServer, read_status
from overspan.adapters.local.supervisors.supervisor_names import SHARED
from overspan.bridge.model.events import Event, event_to_document
from overspan.bridge.runtime.core import kernel
from overspan.bridge.runtime.core.orders import URGENT
from overspan.bridge.runtime.core.shortages import EX_TEMPFAIL, is_shortage, word_shortage

_log = logging.getLogger(__name__)

_FIRST_DELAY = 0.2
_LONGEST_DELAY = 5.0
_INBOX_RETRY_DELAY = 1.0
_SHORT_DELAY = 1.0
"""Seconds between two tries to start a supervisor while the machine lacks a resource."""
_MOST_DEATHS = 8
"""Early deaths in a row after which no supervisor of that name is expected to live."""
_KILLED_SECONDS = 120.0
"""For how long that is not said of those that were killed: by the kernel for lack of memory, or by somebody."""
_STEADY_AFTER = 120.0
"""Seconds of life after which a supervisor's earlier deaths no longer count, if it has written nothing before."""


@dataclass
class SupervisorProcess:
    """One supervisor, alive (`pid` set) or to be started; `pidfd` is None if the kernel has no pidfds."""

    name: str
    folder: str
    pid: int = 0
    start_time: int = 0
    pidfd: int | None = None
    status_socket: socket.socket | None = None
    """The socket on which it reports its exit status; None if an earlier daemon started it."""
    started_at: float = 0.0
    deaths: int = 0
    dying_since: float = 0.0
    """When the first of these was, by the monotonic clock."""
    killed: bool = False
    """Whether the last one was killed, and did not end by itself."""
    short: str = ""
    """What the machine lacked when it could not be started."""
    watched: bool = False
    timer: asyncio.TimerHandle | None = None


class Supervisors:
    """All supervisors of one local cluster.

    `list_launches` gives the unfinished launches of the supervisor of that name; `note_end` is called when one has
    ended, or could not be started.
    """

    def __init__(
        self,
        root: str,
        python: str,
        list_launches: Callable[[str], Sequence[LaunchFiles]],
        note_end: Callable[[str], None],
    ) -> None:
        self._root = root
        self._forks = ForkServer(root, python)
        self._list_launches = list_launches
        self._report_end = note_end
        self._hosts: dict[str, SupervisorProcess] = {}
        self._start_lock = asyncio.Lock()
        self._restarts: set[asyncio.Task[None]] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._hosts

    def is_hopeless(self, name: str) -> bool:
        """Whether supervisors of that name end soon after each start, or cannot be started.

        Starts that fail for a temporary shortage do not count.
        """
        host = self._hosts.get(name)
        if host is None or host.deaths < _MOST_DEATHS:
            return False
        return not host.killed or time.monotonic() - host.dying_since > _KILLED_SECONDS

    def find_shortage(self, name: str) -> str:
        """The resource that the machine lacks to start a supervisor; empty if no shortage is known."""
        return self._hosts[name].short if name in self._hosts else ""

    async def hand(self, name: str, launches: Sequence[LaunchFiles]) -> None:
        """Pass launches to a supervisor, which is adopted, started or woken. A failed start is reported as its end.

        Idempotent: a launch that is passed twice is served once.
        """
        host = self._host(name)
        if host.timer is not None:
            return
        try:
            async with self._start_lock:
                await self._ensure(host, launches)
        except OSError as error:
            _log.warning("supervisor %s: %s", name, error)
            if host.pid:
                # It lives, but its inbox could not be written: try again.
                host.timer = asyncio.get_running_loop().call_later(_INBOX_RETRY_DELAY, self._restart, host)
            else:
                if is_shortage(error):
                    host.short = word_shortage(getattr(error, "errno", None)) or "memory is short"
                else:
                    _count_death(host, killed=False)
                self._report_end(name)
        self.wake(name)

    def note_work(self, name: str) -> None:
        """Reset the count of early deaths, because the supervisor has written something."""
        host = self._hosts.get(name)
        if host is not None and host.pid:
            host.deaths = 0

    def revive(self, name: str) -> None:
        """Restart a supervisor for its unfinished launches: at once the first time, then with back-off up to 5 s."""
        host = self._host(name)
        if host.pid or host.timer is not None:
            return
        delay = min(_LONGEST_DELAY, _FIRST_DELAY * 2 ** min(host.deaths - 2, 10)) if host.deaths > 1 else 0.0
        delay = max(delay, _SHORT_DELAY) if host.short else delay
        host.timer = asyncio.get_running_loop().call_later(delay, self._restart, host)

    def wake(self, name: str) -> None:
        """Signal a supervisor to read its inbox and orders; one that has ended reads them at its next start."""
        host = self._hosts.get(name)
        if host is None or not host.pid:
            return
        try:
            if host.pidfd is None:
                os.kill(host.pid, signal.SIGUSR1)
            else:
                kernel.send_pidfd_signal(host.pidfd, signal.SIGUSR1)
        except ProcessLookupError:
            pass

    def send_urgent(self, name: str, launch: LaunchFiles, orders: Sequence[tuple[str, Event]]) -> bool:
        """Pass orders to a live supervisor through its FIFO, without the disk; False if there is none to read them."""
        host = self._hosts.get(name)
        if host is None or not host.pid:
            return False
        try:
            fd = os.open(f"{host.folder}/{URGENT}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            return False
        try:
            for token, event in orders:
                line = {
                    "run": launch.folder,
                    "launch": launch.launch,
                    "token": token,
                    "event": event_to_document(event),
                }
                os.write(fd, f"{json.dumps(line)}\n".encode())
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    async def forget(self, name: str) -> None:
        """Drop a supervisor that has ended and has no launches left; a log that is not empty stays.

        If the next one lives already, the folder stays in use until that one has ended.
        """
        host = self._hosts.get(name)
        if host is not None:
            if host.pid:
                return
            del self._hosts[name]
            if host.timer is not None:
                host.timer.cancel()
            await asyncio.to_thread(_remove_folder, host.folder)
        if not self._hosts:
            async with self._start_lock:
                if not self._hosts:
                    # Without supervisors, no process but the daemon stays on the machine.
                    await asyncio.to_thread(self._forks.end)

    def poll(self) -> None:
        """Check for ends of supervisors if the kernel has no pidfds."""
        for host in list(self._hosts.values()):
            if host.pid and host.pidfd is None and not _lives(host.pid, host.start_time):
                self._note_end(host)

    def close(self) -> None:
        """Stop watching the supervisors; they go on."""
        loop = asyncio.get_running_loop()
        for host in self._hosts.values():
            if host.timer is not None:
                host.timer.cancel()
            if host.pidfd is not None:
                loop.remove_reader(host.pidfd)
                os.close(host.pidfd)
            if host.status_socket is not None:
                host.status_socket.close()
        self._hosts.clear()
        self._forks.close()
        for task in self._restarts:
            task.cancel()

    def _host(self, name: str) -> SupervisorProcess:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = SupervisorProcess(name, f"{self._root}/hosts/{name}")
        return host

    def _restart(self, host: SupervisorProcess) -> None:
        host.timer = None
        task = asyncio.ensure_future(self.hand(host.name, self._list_launches(host.name)))
        self._restarts.add(task)
        task.add_done_callback(self._restarts.discard)

    async def _ensure(self, host: SupervisorProcess, launches: Sequence[LaunchFiles]) -> None:
        """Make sure that a live supervisor has these launches in its inbox."""
        if host.pid or await asyncio.to_thread(self._adopt, host):
            await asyncio.to_thread(_append_inbox, host.folder, launches)
        else:
            shared = host.name.startswith(SHARED)
            await asyncio.to_thread(_write_inbox, host.folder, self._list_launches(host.name), shared)
            host.pid, host.start_time, host.status_socket = await asyncio.to_thread(self._spawn, host)
            host.short, host.started_at = "", time.monotonic()
            try:
                host.pidfd = _hold(host.pid, host.start_time)
            except ProcessLookupError:
                self._note_end(host)
        # It may have ended while its inbox was written; then its end was reported already.
        if host.pid and not host.watched:
            host.watched = True
            host.started_at = time.monotonic()
            if host.pidfd is not None:
                asyncio.get_running_loop().add_reader(host.pidfd, self._note_end, host)

    def _spawn(self, host: SupervisorProcess) -> Forked:
        os.makedirs(host.folder, 0o700, exist_ok=True)
        return self._forks.fork(host.folder)

    def _adopt(self, host: SupervisorProcess) -> bool:
        """Find a live supervisor of an earlier daemon by the content of its lock."""
        if host.pid:
            return True
        lock = read_document(f"{host.folder}/lock")
        if lock is None or lock.get("boot_id") != kernel.read_boot_id():
            return False
        pid, start_time = int(lock.get("pid") or 0), int(lock.get("start_time") or 0)
        try:
            pidfd = _hold(pid, start_time) if pid > 0 else None
        except OSError:
            return False
        if not _lives(pid, start_time):
            if pidfd is not None:
                os.close(pidfd)
            return False
        host.pid, host.start_time, host.pidfd = pid, start_time, pidfd
        return True

    def _note_end(self, host: SupervisorProcess) -> None:
        if host.pidfd is not None:
            asyncio.get_running_loop().remove_reader(host.pidfd)
            os.close(host.pidfd)
            host.pidfd = None
        status = None
        if host.status_socket is not None:
            status = read_status(host.status_socket)
            host.status_socket.close()
            host.status_socket = None
        host.pid, host.watched = 0, False
        if status == EX_TEMPFAIL:
            host.short = "the machine is short of processes, memory or open files"
            _log.warning("supervisor %s: %s", host.name, host.short)
        else:
            if time.monotonic() - host.started_at > _STEADY_AFTER:
                host.deaths = 0
            _count_death(host, killed=status is None)
        self._report_end(host.name)


def _count_death(host: SupervisorProcess, killed: bool) -> None:
    if host.deaths == 0:
        host.dying_since = time.monotonic()
    host.deaths, host.killed = host.deaths + 1, killed


def _hold(pid: int, start_time: int) -> int | None:
    """A pidfd of exactly this process, None if the kernel has none. Raises ProcessLookupError if it was reaped."""
    pidfd = kernel.open_pidfd(pid)
    # Compared after the pidfd was opened: before that, the pid could be reused.
    if pidfd is not None and kernel.read_start_time(pid) != start_time:
        os.close(pidfd)
        raise ProcessLookupError(f"process {pid} has ended")
    return pidfd


def _lives(pid: int, start_time: int) -> bool:
    process = kernel.read_process(pid) if pid > 0 else None
    return process is not None and process.start_time == start_time and process.state not in "ZX"


def sweep_hosts(root: str, used: Collection[str]) -> None:
    """Remove the folders of supervisors that ended while no daemon was running."""
    for name in os.listdir(f"{root}/hosts"):
        folder = f"{root}/hosts/{name}"
        lock = read_document(f"{folder}/lock") or {}
        alive = lock.get("start_time") and kernel.read_start_time(int(lock["pid"])) == lock["start_time"]
        if name not in used and not alive:
            _remove_folder(folder)


def _inbox_lines(launches: Sequence[LaunchFiles]) -> str:
    return "".join(f"{json.dumps({'run': launch.folder, 'launch': launch.launch})}\n" for launch in launches)


def _append_inbox(folder: str, launches: Sequence[LaunchFiles]) -> None:
    """Append launches under the lock under which a supervisor decides that nothing is left to serve."""
    os.makedirs(folder, 0o700, exist_ok=True)
    fd = os.open(f"{folder}/inbox.jsonl", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        write_at(fd, _inbox_lines(launches).encode(), find_end(fd))
    finally:
        os.close(fd)


def _write_inbox(folder: str, launches: Sequence[LaunchFiles], shared: bool) -> None:
    """Replace the inbox by the unfinished launches; only while no supervisor lives."""
    os.makedirs(folder, 0o700, exist_ok=True)
    remove(f"{folder}/ended")
    if shared:
        os.close(os.open(f"{folder}/shared", os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600))
    fd = os.open(f"{folder}/inbox.jsonl", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    with open(fd, "r+", encoding="utf-8") as file:
        fcntl.flock(fd, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(_inbox_lines(launches))


def _remove_folder(folder: str) -> None:
    try:
        if os.path.getsize(f"{folder}/log") > 0:
            return
    except OSError:
        pass
    shutil.rmtree(folder, ignore_errors=True)
