"""The forker: a small process from which all shims of a supervisor are forked.

A shim keeps every page of its parent that the parent changes later. The supervisor changes its pages all the time, the
forker hardly ever: 300 shims forked from it take a fraction of the memory. It is forked before the supervisor has
anything to remember, obeys requests on a socket and ends with the supervisor; shims outlive both.
"""

from __future__ import annotations

import array  # noqa: F401  socket.recv_fds would import it in each forked shim
import errno
import gc
import marshal
import os
import select
import signal
import socket
from typing import NoReturn, Optional

from overspan.bridge.supervisor import kernel, records
from overspan.bridge.supervisor.isolation import Isolation
from overspan.bridge.supervisor.processes import Shim
from overspan.bridge.supervisor.shim import ALL_SIGNALS, NodeLaunch, run_shim, spawn

_HEADER = 4
_REAP_MILLISECONDS = 1000
_TAKEN = b"T"
_END = b"E"


class Forker:
    """The supervisor's end: `spawn` as in the module shim, but for the process that forks."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self.pid = os.fork()
        if self.pid == 0:
            self._socket.close()
            _run(theirs)
        theirs.close()

    def spawn(self, launch: NodeLaunch) -> Shim:
        """Start a node's shim; FileExistsError and OSError as of `shim.spawn`."""
        try:
            _send(self._socket, marshal.dumps((*launch[:-1], tuple(launch.isolation))))
            answer, descriptors = _receive(self._socket, 1)
        except OSError:
            answer, descriptors = b"", []
        if not answer:
            # The forker is gone; a shim forked from here only takes more memory.
            return spawn(launch)
        pid, number, text = marshal.loads(answer)
        if number == errno.EEXIST:
            raise FileExistsError(number, text)
        if number:
            raise OSError(number, text)
        return Shim(launch.directory, launch.key, pid, descriptors[0] if descriptors else None)


def _run(requests: socket.socket) -> NoReturn:
    status = 1
    try:
        kernel.reset_signals()
        signal.pthread_sigmask(signal.SIG_SETMASK, ALL_SIGNALS)
        kernel.set_comm("span-forker")
        gc.collect()
        gc.freeze()
        gc.disable()
        _serve(requests)
        status = 0
    finally:
        os._exit(status)


def _serve(requests: socket.socket) -> None:
    """Fork a child for each request, which the child itself reads: the less is done here, the less is copied there."""
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    taken, take = os.pipe()
    poll, fork, read, wait = poller.poll, os.fork, os.read, os.waitpid
    while True:
        ready = poll(_REAP_MILLISECONDS)
        try:
            wait(-1, os.WNOHANG)
        except ChildProcessError:
            pass
        if not ready:
            continue
        if fork() == 0:
            _take(requests, take)
        if read(taken, 1) == _END:
            return


def _take(requests: socket.socket, take: int) -> NoReturn:
    """Read one request and become its shim."""
    status = 1
    try:
        request, _ = _receive(requests, 0)
        os.write(take, _TAKEN if request else _END)
        if request:
            fields = marshal.loads(request)
            launch = NodeLaunch._make([*fields[:-1], Isolation(*fields[-1])])
            try:
                lock = records.claim(launch.directory, launch.key)
            except OSError as error:
                _send(requests, marshal.dumps((0, error.errno or errno.EIO, error.strerror or str(error))))
            else:
                pidfd = kernel.open_pidfd(os.getpid())
                _send(requests, marshal.dumps((os.getpid(), 0, "")), [] if pidfd is None else [pidfd])
                run_shim(launch, lock)
        status = 0
    finally:
        os._exit(status)


def _send(to: socket.socket, data: bytes, descriptors: Optional[list[int]] = None) -> None:
    message = len(data).to_bytes(_HEADER, "big") + data
    sent = socket.send_fds(to, [message], descriptors) if descriptors else to.send(message)
    if sent < len(message):
        to.sendall(message[sent:])


def _receive(source: socket.socket, descriptors: int) -> tuple[bytes, list[int]]:
    """One message and the descriptors that came with it; empty when the other end is gone."""
    head, found, _, _ = socket.recv_fds(source, _HEADER, descriptors)
    while 0 < len(head) < _HEADER:
        head += source.recv(_HEADER - len(head))
    size = int.from_bytes(head, "big")
    parts = []
    while size > 0:
        part = source.recv(min(size, 1 << 20))
        if not part:
            return b"", found
        parts.append(part)
        size -= len(part)
    return b"".join(parts), found
