"""The slots of a worker: as many as it has had launches at once, each used again when its launch has ended."""

from __future__ import annotations

import errno
import marshal
import os
import select
import signal
import socket
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
        self._source, self._source_pid = _fork_source()
        self._probe: Optional[IsolationProbe] = None

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
        """What gives members of a group their names here, found out once. Raises OSError where it cannot be now."""
        if self._probe is None:
            self._probe = self._ask(self._ask_probe)
        return self._probe

    def take_back(self, ended: Iterable[Shim]) -> None:
        """Take back the slots of nodes that have ended."""
        for shim in ended:
            slot = self._busy.pop(shim.pid, None)
            if slot is not None:
                self._idle.append(slot)

    def close(self) -> None:
        """Let idle slots end."""
        for slot in (*self._idle, *self._busy.values()):
            slot.close()
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
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with line:
            with theirs:
                socket.send_fds(self._source, [PROBE], [theirs.fileno()])
            line.settimeout(ANSWER_SECONDS)
            answer = line.recv(_PROBE_SIZE)
        if not answer:
            raise OSError(errno.EAGAIN, "how members get their names cannot be tried now")
        return IsolationProbe._make(marshal.loads(answer))

    def _ask_slot(self) -> Slot:
        line, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            socket.send_fds(self._source, [REQUEST], [theirs.fileno()])
            poller = select.poll()
            poller.register(self._source, select.POLLIN)
            if not poller.poll(ANSWER_SECONDS * 1000):
                os.kill(self._source_pid, signal.SIGKILL)
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
