"""The forker: a small process from which all shims of a supervisor are forked.

A shim keeps every page of its parent that the parent changes later. The supervisor changes its pages all the time, the
forker hardly ever: 300 shims forked from it take a fraction of the memory. It is forked before the supervisor has
anything to remember, obeys requests on a socket and ends with the supervisor; shims outlive both.
"""

from __future__ import annotations

import errno
import gc
import marshal
import os
import select
import signal
import socket
from typing import List, NoReturn, Optional, Tuple

from overspan.bridge.supervisor import kernel
from overspan.bridge.supervisor.isolation import Isolation
from overspan.bridge.supervisor.processes import Shim, reap_all
from overspan.bridge.supervisor.shim import NodeLaunch, spawn

_HEADER = 4
_REAP_SECONDS = 1.0


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
            _send(self._socket, marshal.dumps(_plain(launch)))
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


def _plain(launch: NodeLaunch) -> Tuple[object, ...]:
    return (*launch[:-1], tuple(launch.isolation))


def _run(requests: socket.socket) -> NoReturn:
    status = 1
    try:
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        kernel.reset_signals()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        kernel.set_comm("span-forker")
        gc.collect()
        gc.freeze()
        gc.disable()
        _serve(requests)
        status = 0
    finally:
        os._exit(status)


def _serve(requests: socket.socket) -> None:
    poller = select.poll()
    poller.register(requests, select.POLLIN)
    children = 0
    while True:
        if not poller.poll(_REAP_SECONDS * 1000 if children else None):
            children -= len(reap_all())
            continue
        request, _ = _receive(requests, 0)
        if not request:
            return
        *fields, isolation = marshal.loads(request)
        launch = NodeLaunch(*fields, isolation=Isolation(*isolation))
        descriptors: List[int] = []
        try:
            shim = spawn(launch)
        except OSError as error:
            answer = marshal.dumps((0, error.errno or errno.EIO, error.strerror or str(error)))
        else:
            children += 1
            answer = marshal.dumps((shim.pid, 0, ""))
            descriptors = [] if shim.pidfd is None else [shim.pidfd]
        _send(requests, answer, descriptors)
        for descriptor in descriptors:
            os.close(descriptor)


def _send(to: socket.socket, data: bytes, descriptors: Optional[List[int]] = None) -> None:
    message = len(data).to_bytes(_HEADER, "big") + data
    sent = socket.send_fds(to, [message], descriptors) if descriptors else to.send(message)
    if sent < len(message):
        to.sendall(message[sent:])


def _receive(source: socket.socket, descriptors: int) -> Tuple[bytes, List[int]]:
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
