"""The slots of a worker: as many as it has had launches at once, each used again when its launch has ended."""

from __future__ import annotations

import contextlib
import errno
import marshal
import os
import select
import signal
import socket
import time
from collections.abc import Iterable
from typing import Callable, Optional, TypeVar

from overspan.bridge.model.records import NamedTuple
from overspan.bridge.runtime.core import kernel, node_records
from overspan.bridge.runtime.core.isolation import IsolationProbe
from overspan.bridge.runtime.core.shim import NodeLaunch
from overspan.bridge.runtime.core.shim_control import Shim
from overspan.bridge.runtime.pool.slot import PID_SIZE, PROBE, REQUEST, serve_source

ANSWER_SECONDS = 20.0
"""Silence after which the slot source counts as stopped, and is killed."""
PROBE_SECONDS = 0.5
"""How long a worker stands still for a probe; the answer of a slower one is taken with a later try."""
_PROBE_SIZE = 1 << 16
_Answer = TypeVar("_Answer")


class Slot(NamedTuple):
    """A slot: its pid, its pidfd where there are any, and the socket that takes launches."""

    pid: int
    pidfd: Optional[int]
    line: socket.socket

    def close(self) -> None:
        """Let it end."""
        self.line.close()
        if self.pidfd is not None:
            os.close(self.pidfd)


class Slots:
    """Starts node runs in slots. To be made before the process has threads, and anything to remember."""

    def __init__(self) -> None:
        self._idle: list[Slot] = []
        self._busy: dict[int, Slot] = {}
        self._retired: set[tuple[str, str]] = set()
        """Folders and keys of nodes that were signalled."""
        self._source, self._source_pid = _fork_source()
        self._probe: Optional[IsolationProbe] = None
        self._asked: Optional[tuple[socket.socket, float]] = None
        """Where the answer of a probe comes, and since when it is waited for."""

    def spawn(self, launch: NodeLaunch) -> Shim:
        """Start a node in a slot; FileExistsError and OSError as of `shim.spawn`."""
        launch = launch._replace(directory=os.path.abspath(launch.directory))
        body = kernel.create_memfd(marshal.dumps((*launch[:-1], tuple(launch.isolation))))
        try:
            lock = node_records.claim(launch.directory, launch.key)
            try:
                slot, end = self._hand_over(body, lock)
            finally:
                os.close(lock)
        finally:
            os.close(body)
        self._busy[slot.pid] = slot
        pidfd = None if slot.pidfd is None else os.dup(slot.pidfd)
        return Shim(launch.directory, launch.key, slot.pid, pidfd, end)

    def probe(self) -> IsolationProbe:
        """What gives members of a group their names here, found out once.

        Raises OSError, a shortage, where that is not known yet: the next call has the answer, or asks again.
        """
        if self._probe is None:
            self._probe = self._ask(self._ask_probe)
        return self._probe

    def retire(self, shim: Shim) -> None:
        """Have the slot of a node that is about to be signalled end with it.

        The signal may come when the node has ended by itself, and would be for the next one.
        """
        self._retired.add((shim.directory, shim.key))

    def take_back(self, ended: Iterable[Shim]) -> None:
        """Take back the slots of nodes that have ended."""
        for shim in ended:
            slot, node = self._busy.pop(shim.pid, None), (shim.directory, shim.key)
            if slot is not None and node in self._retired:
                slot.close()
            elif slot is not None:
                self._idle.append(slot)
            self._retired.discard(node)

    def close(self) -> None:
        """Let idle slots end."""
        for slot in (*self._idle, *self._busy.values()):
            slot.close()
        if self._asked is not None:
            self._asked[0].close()
        self._source.close()

    def _hand_over(self, body: int, lock: int) -> tuple[Slot, int]:
        """Give a launch to an idle slot, else to a new one; the slot, and what tells of the end."""
        while True:
            slot = self._idle.pop() if self._idle else self._ask(self._ask_slot)
            end, theirs = os.pipe()
            try:
                socket.send_fds(slot.line, [REQUEST], [body, lock, theirs])
                return slot, end
            except OSError as error:
                os.close(end)
                slot.close()
                if error.errno not in (errno.EPIPE, errno.ECONNRESET):
                    raise
                # It was killed while it was idle.
            finally:
                os.close(theirs)

    def _ask(self, question: Callable[[], _Answer]) -> _Answer:
        """Ask the source, or another one where it was killed. Raises OSError where there is no answer now."""
        try:
            return question()
        except (BrokenPipeError, ConnectionResetError):
            self._source.close()
            self._source, self._source_pid = _fork_source()
            return question()

    def _ask_probe(self) -> IsolationProbe:
        patience = 0.0
        if self._asked is None:
            self._asked, patience = (self._send_probe(), time.monotonic()), PROBE_SECONDS
        line, since = self._asked
        if not _is_readable(line, patience):
            if time.monotonic() - since >= ANSWER_SECONDS:
                self._asked = None
                line.close()
                self._kill_source()
            raise OSError(errno.EAGAIN, "how members get their names is being tried")
        self._asked = None
        with line:
            answer = line.recv(_PROBE_SIZE)
        if not answer:
            raise OSError(errno.EAGAIN, "how members get their names cannot be tried now")
        return IsolationProbe._make(marshal.loads(answer))

    def _send_probe(self) -> socket.socket:
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                socket.send_fds(self._source, [PROBE], [theirs.fileno()])
            except OSError:
                line.close()
                raise
        return line

    def _kill_source(self) -> None:
        """End a source that does not answer: the next question finds its socket closed, and forks another one."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._source_pid, signal.SIGKILL)

    def _ask_slot(self) -> Slot:
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(self._source, [REQUEST], [theirs.fileno()])
            if not _is_readable(self._source, ANSWER_SECONDS):
                self._kill_source()
            answer = self._source.recv(PID_SIZE)
            if not answer:
                raise ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))
            pid = int.from_bytes(answer, "big", signed=True)
            if pid < 0:
                raise OSError(-pid, os.strerror(-pid))
            return Slot(pid, _open(pid), line)
        except OSError:
            line.close()
            raise
        finally:
            theirs.close()


def _is_readable(line: socket.socket, seconds: float) -> bool:
    """Whether an answer, or the end of file, comes within so many seconds."""
    poller = select.poll()
    poller.register(line, select.POLLIN)
    return bool(poller.poll(seconds * 1000))


def _open(pid: int) -> Optional[int]:
    try:
        return kernel.open_pidfd(pid)
    except OSError:
        return None


def _fork_source() -> tuple[socket.socket, int]:
    # Packets: a request is taken whole or not at all.
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    pid = os.fork()
    if pid == 0:
        serve_source(theirs)
    theirs.close()
    return ours, pid
