"""The daemon's end of the fork server: starts it, requests supervisors, and replaces one that died or hangs.

It starts with the first supervisor, and ends with the last one or with the daemon. Supervisors outlive both. A fork
server that runs other code than is installed now is replaced too.
"""

from __future__ import annotations

import os
import signal
import socket
import threading
from typing import NamedTuple

from overspan.bridge.runtime.data.mover_control import NETWORK_VARIABLES
from overspan.bridge.runtime.zip_application import build_archive

_ANSWER_SECONDS = 20.0
"""Seconds for an answer, including the start of a fork server; one that takes longer is killed."""
_LINE_SIZE = 128
"""Bytes of the longest message on a status socket."""

# What the interpreter and its children may need; a job's own environment is in its plan.
_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", *NETWORK_VARIABLES)


class Forked(NamedTuple):
    """A forked supervisor: its process, and the socket that reports how it ended."""

    pid: int
    start_time: int
    status_socket: socket.socket


class ForkServer:
    """The process from which the supervisors of one root are forked."""

    def __init__(self, root: str, python: str) -> None:
        self._root = root
        self._python = python
        self._archive = ""
        self._socket: socket.socket | None = None
        self._lock = threading.Lock()
        self._closed = False
        self.pid = 0
        """Its process id; 0 while there is none."""

    def fork(self, folder: str) -> Forked:
        """Fork a supervisor for a host directory. Raises OSError if none was started."""
        archive = build_archive(f"{self._root}/cache")
        log = os.open(f"{folder}/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            with self._lock:
                return self._fork(archive, folder, log)
        finally:
            os.close(log)
            if self._closed:
                self.end()

    def end(self) -> None:
        """End the process; the next supervisor starts another one."""
        with self._lock:
            self._end()

    def close(self) -> None:
        """End the process for good: now, or after the call that is under way."""
        self._closed = True
        if self._lock.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._lock.release()

    def _fork(self, archive: str, folder: str, log: int) -> Forked:
        if archive != self._archive:
            self._end()
        # A second try, because a running fork server may have died in the meantime.
        for _ in range(2 if self._socket is not None else 1):
            if self._socket is None:
                self._start(archive, log)
            forked = self._ask(folder, log)
            if forked is not None:
                return forked
        raise OSError(f"{self._python} ended, or did not answer, before it started a supervisor")

    def _start(self, archive: str, log: int) -> None:
        if self._closed:
            raise OSError("the cluster was closed")
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            try:
                self.pid = os.posix_spawn(
                    self._python,
                    # The last word lets an administrator find the process and its supervisors in ps.
                    [self._python, "-I", "-S", archive, "forkserver", f"{self._root}/hosts/"],
                    _clean_environment(),
                    file_actions=[
                        (os.POSIX_SPAWN_DUP2, theirs.fileno(), 0),
                        (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                        (os.POSIX_SPAWN_DUP2, log, 2),
                    ],
                    setsid=True,
                    # SIGUSR1 would kill a program without a handler. Blocked, also in supervisors, it stays pending.
                    setsigmask=[signal.SIGUSR1],
                    setsigdef=[signal.SIGPIPE, signal.SIGXFSZ],
                )
            except BaseException:
                ours.close()
                raise
        ours.settimeout(_ANSWER_SECONDS)
        self._archive, self._socket = archive, ours

    def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self.pid:
            # Only this method reaps the child, so the pid cannot have been reused.
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0

    def _ask(self, folder: str, log: int) -> Forked | None:
        """Request a supervisor; None if the fork server died, or was killed, before it forked one."""
        assert self._socket is not None
        status_socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        status_socket.settimeout(_ANSWER_SECONDS)
        try:
            with theirs:
                try:
                    # A packet is sent whole or not at all.
                    socket.send_fds(self._socket, [os.fsencode(folder)], [log, theirs.fileno()])
                except OSError:
                    self._end()
                    return None
            words = self._read_answer(status_socket)
            if words[:1] == ["started"]:
                status_socket.setblocking(False)
                return Forked(int(words[1]), int(words[2]), status_socket.dup())
            if words[:1] == ["short"]:
                raise OSError(int(words[1]), os.strerror(int(words[1])))
            return None
        finally:
            status_socket.close()

    def _read_answer(self, status_socket: socket.socket) -> list[str]:
        """The first answer to a request; empty if no process is left to answer. Raises TimeoutError."""
        try:
            answer = status_socket.recv(_LINE_SIZE)
        except TimeoutError:
            answer = b""
        if not answer:
            # Dead or hung. Once it is killed it forks nothing more; a supervisor that it forked answers by itself.
            self._end()
            answer = status_socket.recv(_LINE_SIZE)
        return answer.decode().split()


def read_status(status_socket: socket.socket) -> int | None:
    """The exit status that an ended supervisor has sent; None if it was killed."""
    try:
        words = status_socket.recv(_LINE_SIZE).split()
    except OSError:
        return None
    return int(words[1]) if words[:1] == [b"ended"] else None


def _clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name in _KEPT or name.startswith(("LC_", "XDG_"))}
